#include "report/training_page.h"

#include <fmt/core.h>

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
#include "base/units.h"
#include "record/fields.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/drawing.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/tables.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kSettingsFile = "settings.json";
constexpr size_t kMostPoints = 400;  // of a curve: about one per pixel
constexpr size_t kTableRows = 12;
constexpr const char* kNotPrivateWords =
    "Not private: losses and norms were measured on the data, and the guarantee does not cover "
    "them. Do not publish this page with the model.";

using MetricsFigure = std::optional<double> MetricsLine::*;

// A figure over the steps. Of long runs every point is the mean of as many steps in a row.
ChartLine step_curve(const std::string& name, const std::string& color,
                     const std::vector<MetricsLine>& lines,
                     const std::function<std::optional<double>(const MetricsLine&)>& figure,
                     double unit = 1) {
  ChartLine curve{name, color, {}};
  const size_t each = (lines.size() + kMostPoints - 1) / kMostPoints;
  for (size_t begin = 0; begin < lines.size(); begin += each) {
    double sum = 0, place = 0;
    int64_t count = 0;
    for (size_t i = begin; i < std::min(begin + each, lines.size()); ++i) {
      const auto value = figure(lines[i]);
      if (!value || !std::isfinite(*value)) continue;
      sum += *value, place += static_cast<double>(lines[i].step), ++count;
    }
    if (count > 0)
      curve.points.push_back(
          {place / static_cast<double>(count), sum / static_cast<double>(count) / unit});
  }
  curve.marked = curve.points.size() <= 20;
  return curve;
}

std::function<std::optional<double>(const MetricsLine&)> figure_of(MetricsFigure figure) {
  return [figure](const MetricsLine& line) { return line.*figure; };
}

std::optional<double> peak_of(const MetricsLine& line) {
  return line.peak_memory_bytes ? std::optional(static_cast<double>(*line.peak_memory_bytes))
                                : std::nullopt;
}

struct StepFigure {
  std::string name, title, axis, caption;
  std::vector<ChartLine> lines;
  bool zero_based = true;
};

std::string number(std::optional<double> value, const char* digits = "{:.4g}") {
  return value && std::isfinite(*value) ? fmt::format(fmt::runtime(digits), *value)
         : value                        ? fmt::format("{}", *value)
                                        : "-";
}

// At most so many lines, evenly spread, with the first and the last.
std::vector<const MetricsLine*> some_of(const std::vector<MetricsLine>& lines, size_t most) {
  std::vector<const MetricsLine*> some;
  const size_t count = std::min(most, lines.size());
  for (size_t i = 0; i < count; ++i)
    some.push_back(&lines[count < 2 ? 0 : i * (lines.size() - 1) / (count - 1)]);
  return some;
}

Table step_table(const TrainingRun& run, size_t most) {
  std::vector<std::string> header = {"step", "loss", "learning rate", "tokens/s", "peak memory"};
  if (run.is_private()) header.push_back("epsilon");
  if (!run.evaluations.empty()) header.push_back("held-out loss");
  Table table(header);
  BytesScale scale;
  for (const MetricsLine& line : run.steps) scale.see(peak_of(line));
  for (const MetricsLine* const line : some_of(run.steps, most)) {
    std::vector<std::string> cells = {
        std::to_string(line->step), number(line->loss), number(line->learning_rate, "{:.3g}"),
        line->tokens_per_second ? format_count(*line->tokens_per_second) : "-",
        scale.show(peak_of(*line))};
    if (run.is_private()) cells.push_back(number(line->epsilon, "{:.3f}"));
    if (!run.evaluations.empty()) {
      const auto found = std::find_if(run.evaluations.begin(), run.evaluations.end(),
                                      [&](const MetricsLine& e) { return e.step == line->step; });
      cells.push_back(found == run.evaluations.end() ? "-" : number(found->held_out_loss));
    }
    table.row(std::move(cells));
  }
  return table;
}

std::string metrics_csv(const TrainingRun& run) {
  Table table({"step", "loss", "learning_rate", "tokens_per_second", "seconds", "peak_memory_bytes",
               "epsilon", "held_out_loss"});
  const auto cell = [](std::optional<double> value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  const auto add = [&](const MetricsLine& line) {
    table.row({std::to_string(line.step), cell(line.loss), cell(line.learning_rate),
               cell(line.tokens_per_second), cell(line.seconds),
               line.peak_memory_bytes ? std::to_string(*line.peak_memory_bytes) : "",
               cell(line.epsilon), cell(line.held_out_loss)});
  };
  for (const MetricsLine& line : run.steps) add(line);
  for (const MetricsLine& line : run.evaluations) add(line);
  return table.csv();
}

double mean_of(const std::vector<MetricsLine>& lines, MetricsFigure figure, size_t from,
               size_t to) {
  double sum = 0, count = 0;
  for (size_t i = from; i < to; ++i) {
    if ((lines[i].*figure) && std::isfinite(*(lines[i].*figure)))
      sum += *(lines[i].*figure), ++count;
  }
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

// The first tenth of the steps against the last: a single step's loss is noise.
std::string training_headline(const TrainingRun& run) {
  const size_t all = run.steps.size(), part = std::max<size_t>(1, all / 10);
  const double first = mean_of(run.steps, &MetricsLine::loss, 0, part),
               last = mean_of(run.steps, &MetricsLine::loss, all - part, all);
  const int64_t step = run.steps.back().step;
  std::string words;
  if (!std::isfinite(first) || !std::isfinite(last)) {
    words = fmt::format("After {} steps the loss is not a number", step);
  } else if (all < 2) {
    words = fmt::format("One step was made, with a loss of {:.4g}", last);
  } else {
    words = fmt::format("The loss {} from {:.4g} to {:.4g} in {} steps",
                        last < first   ? "fell"
                        : last > first ? "rose"
                                       : "stayed",
                        first, last, step);
  }
  if (const auto& epsilon = run.steps.back().epsilon)
    words += fmt::format(", for an epsilon of {}", number(epsilon, "{:.3g}"));
  return words + ".";
}

std::vector<KeyFigure> training_figures(const TrainingRun& run) {
  const MetricsLine& last = run.steps.back();
  std::vector<KeyFigure> figures = {{"steps", std::to_string(last.step), ""},
                                    {"last loss", number(last.loss), "of one step"}};
  const double rate = mean_of(run.steps, &MetricsLine::tokens_per_second, 0, run.steps.size());
  if (std::isfinite(rate)) figures.push_back({"tokens per second", format_count(rate), "mean"});
  if (last.epsilon) figures.push_back({"epsilon", number(last.epsilon, "{:.3g}"), "so far"});
  if (!run.evaluations.empty())
    figures.push_back({"held-out loss", number(run.evaluations.back().held_out_loss),
                       fmt::format("after step {}", run.evaluations.back().step)});
  std::optional<double> peak;
  for (const MetricsLine& line : run.steps)
    peak = std::max(peak.value_or(0), peak_of(line).value_or(0));
  if (peak && *peak > 0) figures.push_back({"peak memory", shown_bytes(peak), "per rank"});
  return figures;
}

std::string training_page(const TrainingRun& run, const std::vector<Plot>& plots,
                          const std::string& pictures, const std::string& plots_hint) {
  const std::string question = "How did the training go?";
  std::string out = page_head("veil train", question, training_headline(run));
  out += page_cards(training_figures(run));
  std::vector<std::string> caveats;
  if (run.is_private()) caveats.emplace_back(kNotPrivateWords);
  if (run.damaged > 0)
    caveats.push_back(fmt::format("{} of {} could not be read and {} left out.",
                                  quantity(run.damaged, "line"), kMetricsFile,
                                  run.damaged == 1 ? "is" : "are"));
  out += page_caveats(caveats);
  out += page_section("Plots", page_plots(plots, pictures, plots_hint));
  out += page_section("Steps", html_table(step_table(run, 50), "Evenly spread over the run"));
  if (run.settings.is_object() && !run.settings.empty()) {
    Table settings({"setting", "value"});
    for (const auto& [name, value] : run.settings.items())
      settings.row({name, value.is_string() ? value.get<std::string>() : value.dump()});
    out +=
        page_section("Settings", "<div class=\"settings\">" +
                                     html_table(settings, "As settings.json has them") + "</div>");
  }
  return out + page_end(fmt::format("from {}", quantity(std::ssize(run.steps), "step")));
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

std::vector<Plot> training_plots(const TrainingRun& run) {
  std::vector<StepFigure> figures;
  StepFigure loss{"loss", "Loss", "loss", "Of the samples of each step.", {}, false};
  loss.lines.push_back(
      step_curve("training", series_color(0), run.steps, figure_of(&MetricsLine::loss)));
  if (!run.evaluations.empty()) {
    loss.lines.push_back(step_curve("held out", series_color(3), run.evaluations,
                                    figure_of(&MetricsLine::held_out_loss)));
    loss.lines.back().marked = true;
    loss.caption = "Of the samples of each step, and of held-out data.";
  }
  figures.push_back(std::move(loss));
  figures.push_back({"learning_rate",
                     "Learning rate",
                     "learning rate",
                     "As the schedule set it for each step.",
                     {step_curve("learning rate", series_color(0), run.steps,
                                 figure_of(&MetricsLine::learning_rate))}});
  figures.push_back({"tokens_per_second",
                     "Throughput",
                     "tokens per second",
                     "Of all ranks, without evaluations and checkpoints.",
                     {step_curve("throughput", series_color(0), run.steps,
                                 figure_of(&MetricsLine::tokens_per_second))}});
  figures.push_back(
      {"epsilon",
       "Privacy spent",
       "epsilon",
       "What all steps so far add up to, at the run's delta.",
       {step_curve("epsilon", series_color(0), run.steps, figure_of(&MetricsLine::epsilon))}});
  double largest = 0;
  for (const MetricsLine& line : run.steps) largest = std::max(largest, peak_of(line).value_or(0));
  const Unit unit = bytes_unit(largest);
  figures.push_back({"memory",
                     "Peak memory",
                     unit.name + " at the peak",
                     "The highest moment so far, of the rank that holds most.",
                     {step_curve("peak memory", series_color(0), run.steps, peak_of, unit.size)}});
  const size_t each = (run.steps.size() + kMostPoints - 1) / kMostPoints;
  std::vector<Plot> plots;
  for (StepFigure& figure : figures) {
    Curves curves{.name = figure.name,
                  .title = figure.title,
                  .x_axis = "step",
                  .y_axis = figure.axis,
                  .lines = std::move(figure.lines),
                  .zero_based = figure.zero_based,
                  .x_end = 1.03 * static_cast<double>(run.steps.back().step)};
    const std::string drawn = curves_script(curves);
    if (drawn.empty()) continue;
    Table table({"step", figure.axis});
    std::string spoken;
    const std::vector<ChartPoint>& points = curves.lines[0].points;
    const size_t count = std::min(kTableRows, points.size());
    for (size_t i = 0; i < count; ++i) {
      const ChartPoint& p = points[count < 2 ? 0 : i * (points.size() - 1) / (count - 1)];
      table.row({fmt::format("{:.0f}", p.x), fmt::format("{:.5g}", p.y)});
    }
    if (!points.empty())
      spoken = fmt::format(" {:.4g} at step {:.0f}, {:.4g} at step {:.0f}.", points.front().y,
                           points.front().x, points.back().y, points.back().x);
    const std::string means =
        each > 1 ? fmt::format(" Each point is the mean of {} steps.", each) : "";
    plots.push_back({figure.name, figure.title, figure.caption + means, spoken, table, drawn});
  }
  return plots;
}

std::string training_summary(const TrainingRun& run) {
  std::string out = training_headline(run) + "\n\n" + step_table(run, kTableRows).text();
  if (run.is_private()) out += fmt::format("\n{}\n", kNotPrivateWords);
  return out;
}

ReportFiles write_training_report(const std::string& folder, const std::string& output_folder,
                                  bool overwrite) {
  const TrainingRun run = read_training(folder);
  const std::vector<Plot> plots = training_plots(run);
  ReportFiles report;
  report.output_folder = output_folder.empty() ? folder : output_folder;
  report.pictures = join_path(report.output_folder, "visualizations");
  report.summary = training_summary(run);
  const auto place = [&](const std::string& name) { return join_path(report.output_folder, name); };
  for (const char* const name : {"summary.txt", "summary.csv", "index.html"})
    check_output_file(place(name), overwrite);
  check_plots(plots, report.pictures, overwrite);
  ensure_folder_writable(report.output_folder);
  ensure_folder_writable(report.pictures);
  // Losses tell of the data: nobody else enters the folder of the pictures.
  if (run.is_private())
    fs::permissions(report.pictures, fs::perms::owner_all, fs::perm_options::replace);
  report.plots_hint = draw_plots(plots, report.pictures, overwrite);
  const auto write = [&](const std::string& name, const std::string& content) {
    check_output_file(place(name), overwrite);
    expect_output_file(place(name));
    write_file_atomically(place(name), content, /*owner_only=*/run.is_private());
    list_output_file(place(name));
    report.files.push_back(name);
  };
  write("summary.txt", report.summary);
  write("summary.csv", metrics_csv(run));
  write("index.html", training_page(run, plots, report.pictures, report.plots_hint));
  return report;
}

}  // namespace veil
