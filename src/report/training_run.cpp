#include "report/training_run.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/text.h"
#include "record/fields.h"
#include "report/drawing.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kSettingsFile = "settings.json";
constexpr size_t kMostPoints = 400;  // of a curve: about one per pixel

size_t steps_of_a_point(size_t steps) {
  return (steps + kMostPoints - 1) / kMostPoints;
}

// The folder and all in it are the owner's alone if the pages are; a folder that is there already
// keeps its mode.
std::string drawn(const RunPages& pages, bool overwrite) {
  if (!pages.owner_only) return draw_plots(pages.plots, pages.pictures, overwrite);
  struct OwnersAlone {
    mode_t before = umask(0077);
    ~OwnersAlone() { umask(before); }
  } while_drawn;
  return draw_plots(pages.plots, pages.pictures, overwrite);
}

}  // namespace

bool TrainingRun::is_private() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const MetricsLine& line) { return line.epsilon || line.clip_norm; });
}

bool holds_training(const std::string& folder) {
  std::error_code failed;
  if (!fs::is_regular_file(fs::path(folder) / kMetricsFile, failed)) return false;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().filename().string().ends_with("_result.json")) return false;
  }
  return true;
}

TrainingRun read_training(const std::string& folder) {
  TrainingRun run;
  run.folder = folder;
  const std::string path = join_path(folder, kMetricsFile);
  for (const std::string& text : split(read_file(path), '\n')) {
    if (text.empty()) continue;
    try {
      const MetricsLine line = metrics_line_from_json(parse_object(text));
      (line.is_step() ? run.steps : run.evaluations).push_back(line);
    } catch (const DamagedRecordError&) {
      ++run.damaged;
    }
  }
  if (run.steps.empty())
    user_error("'{}' holds no step: the run has not made one yet, or this is another file", path);
  const auto by_step = [](const MetricsLine& a, const MetricsLine& b) { return a.step < b.step; };
  std::stable_sort(run.steps.begin(), run.steps.end(), by_step);
  std::stable_sort(run.evaluations.begin(), run.evaluations.end(), by_step);
  std::error_code failed;
  const std::string settings = join_path(folder, kSettingsFile);
  if (fs::is_regular_file(settings, failed)) {
    const auto parsed = try_json<nlohmann::ordered_json>(read_file(settings));
    if (parsed.is_object()) run.settings = parsed;
    if (parsed.is_object()) run.settings.erase("check");  // no setting: the SHA-256 of all others
  }
  return run;
}

MetricsFigure figure_of(std::optional<double> MetricsLine::*figure) {
  return [figure](const MetricsLine& line) { return line.*figure; };
}

std::optional<double> peak_of(const MetricsLine& line) {
  return line.peak_memory_bytes ? std::optional(static_cast<double>(*line.peak_memory_bytes))
                                : std::nullopt;
}

std::optional<double> highest_peak(const TrainingRun& run) {
  std::optional<double> peak;
  for (const MetricsLine& line : run.steps)
    if (const auto bytes = peak_of(line)) peak = std::max(peak.value_or(0), *bytes);
  return peak;
}

std::string damaged_words(const TrainingRun& run) {
  return fmt::format("{} of metrics.jsonl could not be read and {} left out.",
                     quantity(run.damaged, "line"), run.damaged == 1 ? "is" : "are");
}

std::string shown_number(std::optional<double> value, const char* digits) {
  return value && std::isfinite(*value) ? fmt::format(fmt::runtime(digits), *value)
         : value                        ? fmt::format("{}", *value)
                                        : "-";
}

double mean_of(const std::vector<MetricsLine>& lines, const MetricsFigure& figure, size_t from,
               size_t to) {
  double sum = 0, count = 0;
  for (size_t i = from; i < to; ++i) {
    const auto value = figure(lines[i]);
    if (value && std::isfinite(*value)) sum += *value, ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

double last_loss(const TrainingRun& run) {
  const size_t all = run.steps.size(), part = std::max<size_t>(1, all / 10);
  const bool lost = std::any_of(
      run.steps.end() - static_cast<int64_t>(part), run.steps.end(), [](const MetricsLine& line) {
        return line.samples != 0 && !(line.loss && std::isfinite(*line.loss));
      });
  return lost ? std::numeric_limits<double>::quiet_NaN()
              : mean_of(run.steps, figure_of(&MetricsLine::loss), all - part, all);
}

ChartLine step_curve(const std::string& name, const std::string& color,
                     const std::vector<MetricsLine>& lines, const MetricsFigure& figure,
                     PointOf point_of, double unit) {
  ChartLine curve{name, color, {}};
  const size_t each = steps_of_a_point(lines.size());
  for (size_t begin = 0; begin < lines.size(); begin += each) {
    double sum = 0, place = 0;
    int64_t count = 0;
    for (size_t i = begin; i < std::min(begin + each, lines.size()); ++i) {
      const auto value = figure(lines[i]);
      if (!value || !std::isfinite(*value)) continue;
      if (point_of == PointOf::last) sum = place = 0, count = 0;
      sum += *value, place += static_cast<double>(lines[i].step), ++count;
    }
    if (count > 0)
      curve.points.push_back(
          {place / static_cast<double>(count), sum / static_cast<double>(count) / unit});
  }
  curve.marked = curve.points.size() <= 20;
  return curve;
}

std::string thinned_words(size_t steps, PointOf point_of) {
  const size_t each = steps_of_a_point(steps);
  return each > 1 ? fmt::format(" Each point is the {} of {} steps.",
                                point_of == PointOf::mean ? "mean" : "last", each)
                  : "";
}

std::vector<size_t> spread_places(size_t size, size_t most) {
  std::vector<size_t> places;
  const size_t count = std::min(most, size);
  for (size_t i = 0; i < count; ++i) places.push_back(count < 2 ? 0 : i * (size - 1) / (count - 1));
  return places;
}

ReportFiles write_run_pages(const RunPages& pages, bool overwrite) {
  ReportFiles report;
  report.output_folder = pages.output_folder;
  report.pictures = pages.pictures;
  report.summary = pages.summary;
  const auto place = [&](const std::string& name) { return join_path(pages.output_folder, name); };
  for (const auto& [name, content] : pages.files) check_output_file(place(name), overwrite);
  check_plots(pages.plots, pages.pictures, overwrite);
  ensure_folder_writable(pages.output_folder);
  report.plots_hint = drawn(pages, overwrite);
  for (const auto& [name, content] : pages.files) {
    check_output_file(place(name), overwrite);
    expect_output_file(place(name));
    write_file_atomically(place(name), content(report.plots_hint), pages.owner_only);
    list_output_file(place(name));
    report.files.push_back(name);
  }
  return report;
}

}  // namespace veil
