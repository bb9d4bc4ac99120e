// What `veil plan` predicts against what is measured: time and memory of plain and private steps,
// models and lengths, one rank and a rank of many.
#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "base/units.h"
#include "report/charts.h"
#include "report/figures.h"
#include "suite/suite.h"

namespace veil {
namespace {

struct ForesightGrid {
  std::vector<std::string> models = {"llama3.1-8b", "llama3.2-1b", "qwen1.5-1.8b"};
  std::vector<int64_t> lengths = {1024, 2048, 4096};
  std::vector<Mode> modes = {Mode::no_dp, Mode::materialize, Mode::bookkeeping, Mode::flash,
                             Mode::ghost};
  std::vector<int64_t> worlds = {1, 2, 8};
};

// Every model at every length in every mode; worlds and checkpointing take turns.
std::vector<Experiment> foresight_experiments(const ForesightGrid& grid,
                                              const std::vector<std::string>& common) {
  std::vector<Experiment> list;
  for (const std::string& model : grid.models) {
    for (const int64_t length : grid.lengths) {
      for (const Mode mode : grid.modes) {
        const size_t number = list.size();
        const int64_t world = grid.worlds[number % grid.worlds.size()];
        const bool checkpointed = number % 4 == 3;
        Experiment experiment;
        experiment.name = fmt::format("{}_{}_{}_{}{}", canonical(model), length, name_of(mode),
                                      world, checkpointed ? "_checkpointed" : "");
        experiment.title = fmt::format("{}, {} tokens, {}{}{}", model, length, name_of(mode),
                                       world > 1 ? fmt::format(", rank of {}", world) : "",
                                       checkpointed ? ", checkpointed" : "");
        experiment.arguments = {
            "--model", model,         "--seq-length",    std::to_string(length),
            "--mode",  name_of(mode), "--checkpointing", checkpointed ? "full" : "none"};
        if (world > 1)
          experiment.arguments.insert(experiment.arguments.end(),
                                      {"--simulate-world", std::to_string(world)});
        list.push_back(std::move(experiment));
      }
    }
  }
  return with_common(std::move(list), common, "a model, a length, a mode or a world");
}

struct Compared {
  const Record* record;
  double predicted_ms, measured_ms, predicted_bytes, measured_bytes;
  double time_error() const { return predicted_ms / measured_ms - 1; }
  double memory_error() const { return predicted_bytes / measured_bytes - 1; }
};

std::vector<Compared> compared(const std::vector<Record>& records) {
  std::vector<Compared> list;
  for (const Record& record : records) {
    const auto ms = compared_ms(record);
    if (!ms || !record.predicted_step_ms || !record.estimated_peak_bytes ||
        !record.peak_memory_bytes || *ms <= 0 || *record.peak_memory_bytes <= 0)
      continue;
    list.push_back({&record, *record.predicted_step_ms, *ms, *record.estimated_peak_bytes,
                    *record.peak_memory_bytes});
  }
  return list;
}

// Of the errors' sizes.
double error_below(const std::vector<Compared>& list, double part,
                   double (Compared::*error)() const) {
  std::vector<double> sizes;
  for (const Compared& one : list) sizes.push_back(std::abs((one.*error)()));
  std::sort(sizes.begin(), sizes.end());
  return sizes[static_cast<size_t>(std::ceil(part * static_cast<double>(sizes.size() - 1)))];
}

std::string percent(double part) {
  return fmt::format("{:+.1f} %", part * 100);
}

Table foresight_table(const std::vector<Record>& records) {
  Table table({"set-up", "predicted", "measured", "off by", "memory predicted", "memory measured",
               "off by"});
  for (const Compared& one : compared(records))
    table.row({one.record->title.empty() ? one.record->label : one.record->title,
               format_ms(one.predicted_ms), format_ms(one.measured_ms), percent(one.time_error()),
               format_bytes(static_cast<int64_t>(one.predicted_bytes)),
               format_bytes(static_cast<int64_t>(one.measured_bytes)),
               percent(one.memory_error())});
  return table;
}

Verdict foresight_verdict(const RecordFolder& folder) {
  Verdict verdict;
  verdict.question = "How far can the plan be trusted?";
  const std::vector<Compared> list = compared(folder.records);
  if (list.empty()) {
    verdict.headline = "No experiment has both a prediction and a measurement.";
    return verdict;
  }
  const double typical = error_below(list, 0.5, &Compared::time_error),
               worst = error_below(list, 1, &Compared::time_error),
               memory = error_below(list, 1, &Compared::memory_error);
  verdict.headline = fmt::format(
      "Predicted times are off by {:.1f} % in the middle and {:.1f} % at worst; memory by at most "
      "{:.1f} %.",
      typical * 100, worst * 100, memory * 100);
  const auto farthest =
      std::max_element(list.begin(), list.end(), [](const Compared& a, const Compared& b) {
        return std::abs(a.time_error()) < std::abs(b.time_error());
      });
  verdict.findings.push_back(fmt::format(
      "Of {}, {} predicted within 10 % and {} within 20 %.",
      quantity(static_cast<int64_t>(list.size()), "step"),
      std::count_if(list.begin(), list.end(),
                    [](const Compared& one) { return std::abs(one.time_error()) <= 0.1; }),
      std::count_if(list.begin(), list.end(),
                    [](const Compared& one) { return std::abs(one.time_error()) <= 0.2; })));
  verdict.findings.push_back(fmt::format(
      "Farthest off: {}, predicted {} and measured {}.",
      farthest->record->title.empty() ? farthest->record->label : farthest->record->title,
      format_ms(farthest->predicted_ms), format_ms(farthest->measured_ms)));
  if (worst > 0.2)
    verdict.findings.push_back(
        "`veil doctor --calibrate` measures this machine; predictions then follow it.");
  verdict.figures = {
      {"median error of time", fmt::format("{:.1f} %", typical * 100), "all steps"},
      {"largest error of memory", fmt::format("{:.1f} %", memory * 100), "all steps"}};
  return verdict;
}

std::vector<Plot> foresight_plot(const std::vector<Record>& records) {
  const std::vector<Compared> list = compared(records);
  if (list.empty()) return {};
  Curves curves{"foresight",    "Predicted and measured time of a step",
                "predicted ms", "measured ms",
                true,           {}};
  ChartLine points{"steps", "#0072B2", {}}, equal{"equal", "#999999", {}, true};
  points.joined = false;
  double least = list.front().predicted_ms, most = least;
  for (const Compared& one : list) {
    points.points.push_back({one.predicted_ms, one.measured_ms});
    least = std::min({least, one.predicted_ms, one.measured_ms});
    most = std::max({most, one.predicted_ms, one.measured_ms});
  }
  equal.points = {{least, least}, {most, most}};
  curves.lines = {points, equal};
  return {{curves.name, curves.title,
           "Both axes are logarithmic. On the dashed line the prediction is right; above it the "
           "step took longer.",
           fmt::format("{}; the median error is {:.1f} %.",
                       quantity(static_cast<int64_t>(list.size()), "step"),
                       error_below(list, 0.5, &Compared::time_error) * 100),
           foresight_table(records), curves_script(curves)}};
}

}  // namespace

Suite foresight_suite() {
  const auto grid = std::make_shared<ForesightGrid>();
  Suite suite{.name = "foresight",
              .help =
                  "what `veil plan --time --memory` predicts against what is measured, over "
                  "models, lengths, modes and worlds",
              .private_step = true,
              .told = {"batch-size", "warmup", "iterations", "link", "optimizer"},
              .experiments = [grid](const std::vector<std::string>& common) {
                return foresight_experiments(*grid, common);
              }};
  suite.page = {.question = "How far can the plan be trusted?",
                .table = foresight_table,
                .plots = {foresight_plot},
                .verdict = foresight_verdict};
  suite.config.model.name = "llama3.2-1b";
  suite.config.step.batch_size = 2;
  suite.config.optimizer.kind = OptimizerKind::sgd;  // large models fit on one GPU with it
  suite.config.measure.warmup = 3;
  suite.config.measure.iterations = 3;
  suite.config.placement.link_gb_per_s = 400;
  suite.options = {{.name = "models", .field = &grid->models, .help = "presets or folders"},
                   {.name = "lengths",
                    .field = &grid->lengths,
                    .help = "tokens in a sequence, one after another",
                    .minimum = 1,
                    .maximum = 1 << 24},
                   {.name = "modes", .field = &grid->modes, .help = "plain and private steps"},
                   {.name = "worlds",
                    .field = &grid->worlds,
                    .help = "ranks of the simulated worlds, which take turns",
                    .minimum = 1,
                    .maximum = 65536}};
  suite.refused = {
      {{"model"}, "the suite compares several; name them with --models"},
      {{"seq-length"}, "the suite compares several; name them with --lengths"},
      {{"mode"}, "the suite compares several; name them with --modes"},
      {{"simulate-world", "ranks"}, "the suite compares several; name them with --worlds"},
      {{"checkpointing"}, "every fourth step is checkpointed"},
      {{"input-size"}, "it is the linear stack's; this suite takes language models"}};
  return suite;
}

}  // namespace veil
