#include "suite/dit.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/dit.h"
#include "report/bars.h"
#include "report/canvas.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {
namespace {

const std::string& color_of(size_t i) {
  return kOkabeIto[i % kOkabeIto.size()];
}

double total_of(const Amounts& amounts) {
  double sum = 0;
  for (const auto& [name, bytes] : amounts) sum += bytes;
  return sum;
}

Plot breakdown_plot(const std::vector<Record>& records) {
  const auto stack =
      memory_stack("memory_breakdown_comparison", "Memory at the peak, by component", records);
  if (!stack) return {};
  return Plot{stack->name,
              stack->title,
              "What the bytes are for at the highest moment of the measured steps; the parts of a "
              "bar sum to the "
              "allocator's peak. Clip records are what clipping keeps of a block until its "
              "coefficients are known; temporary holds the products of norms (ggT, aaT) and "
              "other scratch.",
              stack->spoken,
              breakdown_table(records),
              stacked_script(*stack, records)};
}

// One curve per mode over the rows of its own step. Steps have different numbers of rows, so each
// curve is stretched to the whole width.
Plot timeline_plot(const std::vector<Record>& records) {
  double largest = 0;
  for (const Record& record : records) {
    for (const RecordRow& row : record.memory_rows)
      largest = std::max({largest, total_of(row.after), row.peak_bytes.value_or(0)});
  }
  if (largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  std::string data, spoken;
  std::vector<std::string> series;
  Legend legend{{}, "part of the step's rows, %"};
  for (size_t i = 0; i < records.size(); ++i) {
    const std::vector<RecordRow>& rows = records[i].memory_rows;
    if (rows.empty()) continue;
    std::string points;
    double highest = 0;
    size_t highest_row = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      const double bytes = std::max(total_of(rows[r].after), rows[r].peak_bytes.value_or(0));
      points += fmt::format(
          "{} {}\n", 100.0 * (static_cast<double>(r) + 0.5) / static_cast<double>(rows.size()),
          bytes / unit.size);
      if (bytes > highest) highest = bytes, highest_row = r;
    }
    data += fmt::format("$mode_{} << EOD\n{}EOD\n", i, points);
    series.push_back(fmt::format("$mode_{} using 1:2 with lines linewidth 2 linecolor rgb '{}'", i,
                                 color_of(i)));
    legend.entries.push_back({color_of(i), records[i].label, true});
    spoken += fmt::format(" {}: highest {}, in row {} of {} ({} {}).", records[i].label,
                          shown_bytes(highest), highest_row, rows.size(), rows[highest_row].op,
                          rows[highest_row].on);
  }
  const std::string name = "memory_timeline", title = "Memory over a step";
  const std::string commands = fmt::format(
      "set ylabel '{1}' textcolor rgb '{0}'\nset xrange [0:100]\nset yrange [0:{2}]\n"
      "set grid ytics linetype 1 linewidth 0.5 linecolor rgb '{0}' dashtype 3\nplot {3}\n",
      kInk, unit.name, largest / unit.size * 1.1, join(series, ", \\\n     "));
  return Plot{name,
              title,
              "The most that was held while each row of the schedule ran, from a step's first row "
              "to its last; rows "
              "stand at equal distances however long they last.",
              spoken,
              breakdown_table(records),
              script(name, {.title = title, .left = 64, .plot_height = 280, .legend = legend}, data,
                     commands)};
}

Plot tradeoff_plot(const std::vector<Record>& records) {
  double slowest = 0, largest = 0;
  for (const Record& record : records) {
    if (!compared_ms(record) || !record.peak_memory_bytes) continue;
    slowest = std::max(slowest, *compared_ms(record));
    largest = std::max(largest, *record.peak_memory_bytes);
  }
  if (slowest <= 0 || largest <= 0) return {};
  const Unit unit = bytes_unit(largest);
  std::string data, spoken;
  std::vector<std::string> series;
  Legend legend{{}, "ms per step"};
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const auto ms = compared_ms(record);
    if (!ms || !record.peak_memory_bytes) {
      spoken += fmt::format(" {}: {}.", record.label, outcome_words(record));
      continue;
    }
    data +=
        fmt::format("$mode_{} << EOD\n{} {}\nEOD\n", i, *ms, *record.peak_memory_bytes / unit.size);
    series.push_back(
        fmt::format("$mode_{} using 1:2 with circles fillstyle solid 1 noborder linecolor rgb '{}'",
                    i, color_of(i)));
    legend.entries.push_back({color_of(i), record.label});
    spoken += fmt::format(" {}: {}, {}.", record.label, format_ms(*ms),
                          shown_bytes(record.peak_memory_bytes));
  }
  const std::string name = "performance_tradeoff", title = "Time and memory of a step";
  const std::string commands = fmt::format(
      "set style circle radius screen 0.012\n"
      "set ylabel '{1} at the peak' textcolor rgb '{0}'\nset xrange [0:{2}]\nset yrange "
      "[0:{3}]\nset xtics autofreq\n"
      "set grid xtics ytics linetype 1 linewidth 0.5 linecolor rgb '{0}' dashtype 3\nplot {4}\n",
      kInk, unit.name, slowest * 1.1, largest / unit.size * 1.1, join(series, ", \\\n     "));
  return Plot{name,
              title,
              "Towards the left is faster, downwards needs less memory.",
              spoken,
              time_table(records),
              script(name, {.title = title, .left = 64, .plot_height = 280, .legend = legend}, data,
                     commands)};
}

// The plots that only this suite has.
std::vector<Plot> dit_plots(const std::vector<Record>& records) {
  std::vector<Plot> plots = {breakdown_plot(records), timeline_plot(records),
                             tradeoff_plot(records)};
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

std::string mode_title(Mode mode) {
  if (mode == Mode::no_dp) return "vanilla";
  if (mode == Mode::flash) return "flash_clip";
  return name_of(mode);
}

std::string file_part(std::string text) {
  text = canonical(text);
  std::replace(text.begin(), text.end(), '/', '-');
  return text;
}

// Every experiment so far, once for each value; a single value adds nothing to the name.
template <typename T, typename Show>
void widen(std::vector<Experiment>& experiments, const std::vector<T>& values,
           const std::string& option, const std::string& prefix, const Show& show) {
  if (values.empty()) return;
  std::vector<Experiment> wider;
  for (const Experiment& before : experiments) {
    for (const T& value : values) {
      Experiment experiment = before;
      experiment.arguments.insert(experiment.arguments.end(), {option, show(value)});
      if (values.size() > 1) {
        experiment.name += "_" + prefix + file_part(show(value));
        experiment.title += fmt::format(" {}{}", prefix, show(value));
      }
      wider.push_back(std::move(experiment));
    }
  }
  experiments = std::move(wider);
}

// Every model with every size, before the first experiment.
void check_models(const DitGrid& grid, const RunConfig& e) {
  for (const std::string& model : grid.models.empty() ? std::vector{e.model.name} : grid.models) {
    RunConfig tried = e;
    tried.model.name = model;
    if (!find_model(model, e.model.hub_cache).diffusion)
      field_error("model", "{}: this suite measures diffusion transformers; presets are {}", model,
                  join(dit_preset_names(), ", "));
    for (const int64_t image :
         grid.image_sizes.empty() ? std::vector<int64_t>{0} : grid.image_sizes) {
      if (image > 0) tried.model.diffusion.image_size = image;
      for (const int64_t patch :
           grid.patch_sizes.empty() ? std::vector<int64_t>{0} : grid.patch_sizes) {
        if (patch > 0) tried.model.diffusion.patch = patch;
        model_source(tried);
      }
    }
  }
}

}  // namespace

std::vector<Experiment> dit_experiments(const DitGrid& grid,
                                        const std::vector<std::string>& common) {
  std::vector<Experiment> experiments;
  for (const Mode mode : grid.modes)
    experiments.push_back({mode_title(mode), mode_title(mode), {"--mode", name_of(mode)}});
  const auto number = [](int64_t value) { return std::to_string(value); };
  widen(experiments, grid.models, "--model", "", [](const std::string& name) { return name; });
  widen(experiments, grid.image_sizes, "--image-size", "img", number);
  widen(experiments, grid.patch_sizes, "--patch-size", "p", number);
  widen(experiments, grid.batch_sizes, "--batch-size", "bs", number);
  widen(experiments, grid.accumulations, "--accumulation", "ga", number);
  widen(experiments, grid.attentions, "--attention", "",
        [](AttentionKind kind) { return name_of(kind); });
  return with_common(std::move(experiments), common, "a mode or value");
}

Suite dit_suite() {
  const auto grid = std::make_shared<DitGrid>();
  Suite suite{.name = "dit-dp",
              .help = "ways to clip on a diffusion transformer: memory by component, and time",
              .output_dir = "memory_profiling_results",
              .private_step = true,
              .told = {"model", "batch-size", "warmup", "iterations", "optimizer"},
              .prepare =
                  [grid](RunConfig& e, const SuiteCall&) {
                    check_models(*grid, e);
                    return std::vector<std::string>{};
                  },
              .experiments =
                  [grid](const std::vector<std::string>& common) {
                    return dit_experiments(*grid, common);
                  }};
  suite.page = {
      .question =
          "What does clipping cost a diffusion transformer, in memory and in time, and by "
          "which way?",
      .plots = {dit_plots, time_plot, phase_plot, stage_plot, timeline_plots},
      .plain_is_baseline = true,
      .sample = "image",
      .summary_beside_pictures = true};
  RunConfig& e = suite.config;
  e.model.name = "dit-l/8";
  e.step.batch_size = 2;
  e.measure.warmup = 0;
  e.measure.iterations = 3;
  e.optimizer.kind = OptimizerKind::adamw;
  suite.options = {{.name = "modes",
                    .field = &grid->modes,
                    .aliases = {"experiments"},
                    .help = "ways to clip that are compared"},
                   {.name = "models",
                    .field = &grid->models,
                    .help = "one after another, instead of --model: dit-l/8,dit-xl/8",
                    .instead_of = "model"},
                   {.name = "image-sizes",
                    .field = &grid->image_sizes,
                    .help = "one after another, instead of --image-size",
                    .minimum = 1,
                    .instead_of = "image-size"},
                   {.name = "patch-sizes",
                    .field = &grid->patch_sizes,
                    .help = "one after another, instead of --patch-size",
                    .minimum = 1,
                    .instead_of = "patch-size"},
                   {.name = "batch-sizes",
                    .field = &grid->batch_sizes,
                    .help = "one after another, instead of --batch-size",
                    .minimum = 1,
                    .instead_of = "batch-size"},
                   {.name = "accumulations",
                    .field = &grid->accumulations,
                    .help = "one after another, instead of --accumulation",
                    .minimum = 1,
                    .maximum = 1000000,
                    .instead_of = "accumulation"},
                   {.name = "attentions",
                    .field = &grid->attentions,
                    .help = "one after another, instead of --attention",
                    .instead_of = "attention"}};
  suite.refused = {{{"mode"}, "the suite compares several; name them with --modes"},
                   {{"input-size", "seq-length", "task", "labels", "data", "tokenizer"},
                    "this suite measures diffusion transformers on synthetic images"}};
  return suite;
}

}  // namespace veil
