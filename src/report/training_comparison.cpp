#include "report/training_comparison.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/tables.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRunRows = 6;  // of each run
constexpr const char* kChoiceWords =
    "Choosing a run by its losses looks at the data once more, and no run's epsilon counts that.";

bool any_private(const std::vector<ComparedRun>& runs) {
  return std::any_of(runs.begin(), runs.end(),
                     [](const ComparedRun& one) { return one.run.is_private(); });
}

bool all_evaluated(const std::vector<ComparedRun>& runs) {
  return std::all_of(runs.begin(), runs.end(), [](const ComparedRun& one) {
    return !one.run.evaluations.empty() && one.run.evaluations.back().held_out_loss;
  });
}

std::optional<double> last_held_out(const TrainingRun& run) {
  return run.evaluations.empty() ? std::nullopt : run.evaluations.back().held_out_loss;
}

// Of their steps; evaluations and checkpoints are not among them.
double seconds_of(const TrainingRun& run) {
  double sum = 0;
  for (const MetricsLine& line : run.steps) sum += line.seconds.value_or(0);
  return sum;
}

// What the paths have beyond the folders that all share, and without the run_DATE that `veil train`
// added if that leaves them apart: "plain" and "private".
std::vector<std::string> names_of(const std::vector<std::string>& folders) {
  std::vector<std::vector<std::string>> paths;
  for (const std::string& folder : folders) {
    std::vector<std::string>& parts = paths.emplace_back();
    for (const fs::path& part : fs::weakly_canonical(folder)) parts.push_back(part.string());
  }
  const auto shared = [&](size_t place) {
    return std::all_of(paths.begin(), paths.end(), [&](const auto& path) {
      return place + 1 < path.size() && path[place] == paths[0][place];
    });
  };
  size_t begin = 0;
  while (shared(begin)) ++begin;
  const auto named = [&](size_t left_out) {
    std::vector<std::string> names;
    for (const auto& path : paths)
      names.push_back(join(
          {path.begin() + static_cast<int64_t>(begin), path.end() - static_cast<int64_t>(left_out)},
          "/"));
    return names;
  };
  const bool dated = std::all_of(paths.begin(), paths.end(), [&](const auto& path) {
    return path.size() > begin + 1 && path.back().starts_with("run_");
  });
  if (!dated) return named(0);
  const std::vector<std::string> names = named(1);
  const std::set<std::string> unlike(names.begin(), names.end());
  return unlike.size() == names.size() ? names : named(0);
}

// As settings.json has it; "-" for none.
std::string setting(const TrainingRun& run, const std::string& name) {
  const auto found = run.settings.find(name);
  if (found == run.settings.end() || found->is_null()) return "-";
  return printable(found->is_string() ? found->get<std::string>() : found->dump());
}

std::vector<std::string> caveats_of(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> caveats;
  if (any_private(runs)) caveats.push_back(fmt::format("{} {}", kNotPrivateWords, kChoiceWords));
  std::set<std::pair<std::string, std::string>> guarantees;
  for (const auto& [name, run] : runs)
    if (run.is_private()) guarantees.emplace(setting(run, "delta"), setting(run, "privacy-unit"));
  if (guarantees.size() > 1)
    caveats.emplace_back(
        "The private runs differ in delta or in whom they protect: their epsilons "
        "cannot be compared.");
  for (const auto& [name, run] : runs) {
    if (run.damaged > 0) caveats.push_back(name + ": " + damaged_words(run));
  }
  return caveats;
}

std::string comparison_page(const std::vector<ComparedRun>& runs, const std::vector<Plot>& plots,
                            const std::string& pictures, const std::string& plots_hint) {
  std::string out =
      page_head("veil report", "How do the training runs differ?", comparison_headline(runs));
  out += page_caveats(caveats_of(runs));
  out += page_section(
      "Runs",
      html_table(comparison_table(runs),
                 "The loss is the mean of the last tenth of the steps; epsilon is an upper bound"));
  out += page_section("Plots", page_plots(plots, pictures, plots_hint));
  if (const Table settings = differing_settings(runs); settings.rows() > 0)
    out += page_section(
        "Settings that differ",
        "<div class=\"settings\">" + html_table(settings, "As settings.json has them") + "</div>");
  return out + page_end(fmt::format("from {}", quantity(std::ssize(runs), "run")));
}

}  // namespace

std::vector<ComparedRun> read_compared(const std::vector<std::string>& folders) {
  if (folders.size() > kMostCompared)
    user_error("{} training runs: at most {} are compared", folders.size(), kMostCompared);
  std::vector<ComparedRun> runs;
  std::set<fs::path> places;
  for (const std::string& folder : folders) {
    if (!fs::exists(folder)) user_error("'{}': no such folder", folder);
    if (!holds_training(folder))
      user_error(
          "'{}' is not a training run's folder (metrics.jsonl), and only those are compared "
          "with one",
          folder);
    if (!places.insert(fs::weakly_canonical(folder)).second)
      user_error("'{}' is given twice", folder);
    runs.push_back({"", read_training(folder)});
  }
  const std::vector<std::string> names = names_of(folders);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].name = printable(names[i]);
  return runs;
}

std::string comparison_headline(const std::vector<ComparedRun>& runs) {
  const bool held_out = all_evaluated(runs);
  const char* const what = held_out ? "held-out loss" : "loss";
  std::vector<std::pair<double, std::string>> reached;
  for (const auto& [name, run] : runs) {
    const double loss = held_out ? *last_held_out(run) : last_loss(run);
    if (std::isfinite(loss)) reached.emplace_back(loss, name);
  }
  if (reached.empty()) return "No run ends with a loss that is a number.";
  std::sort(reached.begin(), reached.end());
  const auto& [lowest, best] = reached.front();
  const auto& [highest, last] = reached.back();
  std::string words = fmt::format("{} ends with the lowest {}, {:.4g}", best, what, lowest);
  if (reached.size() > 1) words += fmt::format("; {} with the highest, {:.4g}", last, highest);
  if (reached.size() < runs.size())
    words += fmt::format("; {} with one that is no number",
                         quantity(std::ssize(runs) - std::ssize(reached), "run"));
  return words + ".";
}

Table comparison_table(const std::vector<ComparedRun>& runs) {
  const bool guaranteed = any_private(runs);
  std::vector<std::string> header = {"run", "steps", "loss", "held-out loss"};
  if (guaranteed) header.insert(header.end(), {"epsilon", "delta", "unit"});
  header.insert(header.end(), {"tokens/s", "time of steps", "peak memory"});
  Table table(header);
  BytesScale scale;
  for (const auto& [name, run] : runs) scale.see(highest_peak(run));
  for (const auto& [name, run] : runs) {
    const double rate =
        mean_of(run.steps, figure_of(&MetricsLine::tokens_per_second), 0, run.steps.size());
    std::vector<std::string> cells = {name, std::to_string(run.steps.back().step),
                                      shown_number(last_loss(run)),
                                      shown_number(last_held_out(run))};
    const auto epsilon = run.steps.back().epsilon;
    if (guaranteed && run.is_private()) {
      cells.insert(cells.end(), {epsilon ? format_epsilon(*epsilon) : "-", setting(run, "delta"),
                                 setting(run, "privacy-unit")});
    } else if (guaranteed) {
      cells.insert(cells.end(), {"not private", "-", "-"});
    }
    cells.insert(cells.end(), {std::isfinite(rate) ? format_count(rate) : "-",
                               format_duration(seconds_of(run)), scale.show(highest_peak(run))});
    table.row(std::move(cells));
  }
  return table;
}

Table differing_settings(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> header = {"setting"};
  for (const auto& [name, run] : runs) header.push_back(name);
  Table table(header);
  std::set<std::string> known;
  for (const auto& one : runs)
    for (const auto& [field, value] : one.run.settings.items()) known.insert(field);
  for (const std::string& field : known) {
    std::vector<std::string> cells = {field};
    for (const auto& [name, run] : runs) cells.push_back(setting(run, field));
    const bool alike = std::all_of(cells.begin() + 1, cells.end(),
                                   [&](const std::string& cell) { return cell == cells[1]; });
    if (!alike) table.row(std::move(cells));
  }
  return table;
}

std::string comparison_text(const std::vector<ComparedRun>& runs) {
  std::string out =
      comparison_headline(runs) + "\n\n" + comparison_table(runs).text() +
      "\nThe loss is the mean of the last tenth of the steps, epsilon at most what all "
      "steps add up to.\n";
  if (const Table settings = differing_settings(runs); settings.rows() > 0)
    out += "\nSettings that differ\n" + settings.text();
  for (const std::string& caveat : caveats_of(runs)) out += "\n" + caveat + "\n";
  return out;
}

std::vector<Plot> comparison_plots(const std::vector<ComparedRun>& runs) {
  double largest = 0;
  int64_t last_step = 0;
  size_t most_steps = 0;
  for (const auto& [name, run] : runs) {
    largest = std::max(largest, highest_peak(run).value_or(0));
    last_step = std::max(last_step, run.steps.back().step);
    most_steps = std::max(most_steps, run.steps.size());
  }
  const Unit bytes = bytes_unit(largest);
  struct Figure {
    const char *name, *title;
    std::string axis, caption;
    MetricsFigure figure;
    bool evaluations = false, zero_based = true;
    double unit = 1;
    PointOf point_of = PointOf::mean;
    std::string shown(double value) const {
      return point_of == PointOf::last ? format_epsilon(value) : fmt::format("{:.5g}", value);
    }
  };
  const Figure figures[] = {{"loss", "Loss", "loss", "Of the samples of each step.",
                             figure_of(&MetricsLine::loss), false, false},
                            {"held_out_loss", "Held-out loss", "held-out loss",
                             "Comparable only where the same data is held out.",
                             figure_of(&MetricsLine::held_out_loss), true, false},
                            {"epsilon", "Privacy spent", "epsilon", kEpsilonWords,
                             figure_of(&MetricsLine::epsilon), false, true, 1, PointOf::last},
                            {"tokens_per_second", "Throughput", "tokens per second",
                             "Of all ranks, without evaluations and checkpoints.",
                             figure_of(&MetricsLine::tokens_per_second)},
                            {"memory", "Peak memory", bytes.name + " at the peak",
                             "The highest moment so far, of the rank that holds most.", peak_of,
                             false, true, bytes.size}};
  std::vector<Plot> plots;
  for (const Figure& figure : figures) {
    Curves curves{.name = figure.name,
                  .title = figure.title,
                  .x_axis = "step",
                  .y_axis = figure.axis,
                  .lines = {},
                  .zero_based = figure.zero_based,
                  .x_end = 1.03 * static_cast<double>(last_step)};
    Table table({"run", "step", figure.axis});
    std::string spoken;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto& [name, run] = runs[i];
      ChartLine line =
          step_curve(name, series_color(i), figure.evaluations ? run.evaluations : run.steps,
                     figure.figure, figure.point_of, figure.unit);
      if (line.points.empty()) continue;
      for (const size_t place : spread_places(line.points.size(), kRunRows))
        table.row({name, fmt::format("{:.0f}", line.points[place].x),
                   figure.shown(line.points[place].y)});
      spoken += fmt::format(" {}: {} at step {:.0f}.", name, figure.shown(line.points.back().y),
                            line.points.back().x);
      curves.lines.push_back(std::move(line));
    }
    const std::string script = curves_script(curves);
    if (script.empty()) continue;
    plots.push_back(
        {figure.name, figure.title,
         figure.caption + (figure.evaluations ? "" : thinned_words(most_steps, figure.point_of)),
         spoken, table, script});
  }
  return plots;
}

ReportFiles write_training_comparison(const std::vector<std::string>& folders,
                                      const std::string& output_folder, bool overwrite) {
  const std::vector<ComparedRun> runs = read_compared(folders);
  RunPages pages;
  pages.summary = comparison_text(runs);
  if (output_folder.empty()) {
    ReportFiles only_text;
    only_text.summary = pages.summary;
    return only_text;
  }
  pages.output_folder = output_folder;
  pages.pictures = join_path(output_folder, "comparison");
  pages.plots = comparison_plots(runs);
  pages.owner_only = any_private(runs);
  pages.files = {
      {"comparison.txt", [&](const std::string&) { return pages.summary; }},
      {"comparison.csv", [&](const std::string&) { return comparison_table(runs).csv(); }},
      {"comparison.html", [&](const std::string& plots_hint) {
         return comparison_page(runs, pages.plots, pages.pictures, plots_hint);
       }}};
  return write_run_pages(pages, overwrite);
}

}  // namespace veil
