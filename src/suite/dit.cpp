#include "suite/dit.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "models/dit.h"
#include "suite/mode_plots.h"

namespace veil {
namespace {

std::string file_part(std::string text) {
  text = canonical(text);
  std::replace(text.begin(), text.end(), '/', '-');
  return text;
}

// Every experiment so far, once for each value; a single value adds nothing to the name. `suffix`
// is of the title only.
template <typename T, typename Show>
void widen(std::vector<Experiment>& experiments, const std::vector<T>& values,
           const std::string& option, const std::string& prefix, const Show& show,
           const std::string& suffix = "") {
  if (values.empty()) return;
  std::vector<Experiment> wider;
  for (const Experiment& before : experiments) {
    for (const T& value : values) {
      Experiment experiment = before;
      experiment.arguments.insert(experiment.arguments.end(), {option, show(value)});
      if (values.size() > 1) {
        experiment.name += "_" + prefix + file_part(show(value));
        experiment.title += fmt::format(" {}{}{}", prefix, show(value), suffix);
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

std::string dit_mode_title(Mode mode) {
  if (mode == Mode::no_dp) return "vanilla";
  if (mode == Mode::flash) return "flash_clip";
  return name_of(mode);
}

std::vector<Experiment> dit_experiments(const DitGrid& grid,
                                        const std::vector<std::string>& common) {
  std::vector<Experiment> experiments;
  for (const Mode mode : grid.modes)
    experiments.push_back({dit_mode_title(mode), dit_mode_title(mode), {"--mode", name_of(mode)}});
  const auto number = [](int64_t value) { return std::to_string(value); };
  widen(experiments, grid.models, "--model", "", [](const std::string& name) { return name; });
  widen(experiments, grid.image_sizes, "--image-size", "img", number);
  widen(experiments, grid.patch_sizes, "--patch-size", "p", number);
  widen(experiments, grid.batch_sizes, "--batch-size", "bs", number);
  widen(experiments, grid.accumulations, "--accumulation", "ga", number);
  widen(
      experiments, grid.attentions, "--attention", "",
      [](AttentionKind kind) { return name_of(kind); }, "-attention");
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
      .plots = {dit_plots, dit_growth_plots, time_plot, phase_plot, stage_plot, timeline_plots},
      .verdict = dit_verdict,
      .plain_is_baseline = true,
      .sample = "image",
      .summary_beside_pictures = true,
      .more_tables = dit_tables,
      .peer_plots = privacy_cost_plots};
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
