#include "report/training_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr size_t kTableRows = 12;

struct StepFigure {
  std::string name, title, axis, caption;
  std::vector<ChartLine> lines;
  bool zero_based = true;
  PointOf point_of = PointOf::mean;
  std::function<std::string(double)> shown = [](double value) {
    return fmt::format("{:.5g}", value);
  };
};

Table step_table(const TrainingRun& run, size_t most) {
  std::vector<std::string> header = {"step", "loss", "learning rate", "tokens/s", "peak memory"};
  if (run.is_private()) header.push_back("epsilon");
  if (!run.evaluations.empty()) header.push_back("held-out loss");
  Table table(header);
  BytesScale scale;
  for (const MetricsLine& line : run.steps) scale.see(peak_of(line));
  for (const size_t place : spread_places(run.steps.size(), most)) {
    const MetricsLine* const line = &run.steps[place];
    std::vector<std::string> cells = {
        std::to_string(line->step), shown_number(line->loss),
        shown_number(line->learning_rate, "{:.3g}"),
        line->tokens_per_second ? format_count(*line->tokens_per_second) : "-",
        scale.show(peak_of(*line))};
    if (run.is_private()) cells.push_back(line->epsilon ? format_epsilon(*line->epsilon) : "-");
    if (!run.evaluations.empty()) {
      const auto found = std::find_if(run.evaluations.begin(), run.evaluations.end(),
                                      [&](const MetricsLine& e) { return e.step == line->step; });
      cells.push_back(found == run.evaluations.end() ? "-" : shown_number(found->held_out_loss));
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

// The first tenth of the steps against the last: a single step's loss is noise.
std::string training_headline(const TrainingRun& run) {
  const size_t all = run.steps.size(), part = std::max<size_t>(1, all / 10);
  const double first = mean_of(run.steps, figure_of(&MetricsLine::loss), 0, part),
               last = last_loss(run);
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
    words += fmt::format(", for an epsilon of at most {}", format_epsilon(*epsilon));
  return words + ".";
}

std::vector<KeyFigure> training_figures(const TrainingRun& run) {
  const MetricsLine& last = run.steps.back();
  std::vector<KeyFigure> figures = {{"steps", std::to_string(last.step), ""},
                                    {"last loss", shown_number(last.loss), "of one step"}};
  const double rate =
      mean_of(run.steps, figure_of(&MetricsLine::tokens_per_second), 0, run.steps.size());
  if (std::isfinite(rate)) figures.push_back({"tokens per second", format_count(rate), "mean"});
  if (last.epsilon)
    figures.push_back({"epsilon", format_epsilon(*last.epsilon), "at most, so far"});
  if (!run.evaluations.empty())
    figures.push_back({"held-out loss", shown_number(run.evaluations.back().held_out_loss),
                       fmt::format("after step {}", run.evaluations.back().step)});
  const auto peak = highest_peak(run);
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
  if (run.damaged > 0) caveats.push_back(damaged_words(run));
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
  figures.push_back({"epsilon",
                     "Privacy spent",
                     "epsilon",
                     kEpsilonWords,
                     {step_curve("epsilon", series_color(0), run.steps,
                                 figure_of(&MetricsLine::epsilon), PointOf::last)}});
  figures.back().point_of = PointOf::last;
  figures.back().shown = [](double epsilon) { return format_epsilon(epsilon); };
  const Unit unit = bytes_unit(highest_peak(run).value_or(0));
  figures.push_back(
      {"memory",
       "Peak memory",
       unit.name + " at the peak",
       "The highest moment so far, of the rank that holds most.",
       {step_curve("peak memory", series_color(0), run.steps, peak_of, PointOf::mean, unit.size)}});
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
    for (const size_t place : spread_places(points.size(), kTableRows))
      table.row({fmt::format("{:.0f}", points[place].x), figure.shown(points[place].y)});
    if (!points.empty())
      spoken = fmt::format(" {} at step {:.0f}, {} at step {:.0f}.", figure.shown(points.front().y),
                           points.front().x, figure.shown(points.back().y), points.back().x);
    plots.push_back({figure.name, figure.title,
                     figure.caption + thinned_words(run.steps.size(), figure.point_of), spoken,
                     table, drawn});
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
  RunPages pages;
  pages.output_folder = output_folder.empty() ? folder : output_folder;
  pages.pictures = join_path(pages.output_folder, "visualizations");
  pages.plots = training_plots(run);
  pages.summary = training_summary(run);
  pages.owner_only = run.is_private();
  pages.files = {{"summary.txt", [&](const std::string&) { return pages.summary; }},
                 {"summary.csv", [&](const std::string&) { return metrics_csv(run); }},
                 {"index.html", [&](const std::string& plots_hint) {
                    return training_page(run, pages.plots, pages.pictures, plots_hint);
                  }}};
  return write_run_pages(pages, overwrite);
}

}  // namespace veil
