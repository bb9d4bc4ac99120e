// The suite of seed 004: ways to clip on a diffusion transformer.
#include "base/text.h"
#include "cli/suite.h"
#include "models/dit.h"
#include "suite/dit.h"

namespace veil {
namespace {

using Plan = std::vector<PlannedExperiment>;

void set_dit_defaults(SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  e.model = "dit-l/8";
  e.batch_size = 2;
  e.warmup = 0;
  e.iterations = 3;
  e.optimizer = OptimizerKind::adamw;
  command.output_dir = "memory_profiling_results";
}

void add_dit_options(Options& options, SuiteCommand& command) {
  DitGrid& grid = command.dit;
  add_private_step_options(options, command.experiment);
  options.add("modes", grid.modes, {.aliases = {"experiments"}, .help = "ways to clip that are compared"});
  options.add("models", grid.models, {.help = "one after another, instead of --model: dit-l/8,dit-xl/8"});
  options.add("image-sizes", grid.image_sizes, {.help = "one after another, instead of --image-size", .minimum = 1});
  options.add("patch-sizes", grid.patch_sizes, {.help = "one after another, instead of --patch-size", .minimum = 1});
  options.add("batch-sizes", grid.batch_sizes, {.help = "one after another, instead of --batch-size", .minimum = 1});
  options.add("accumulations", grid.accumulations,
              {.help = "one after another, instead of --accumulation", .minimum = 1, .maximum = 1000000});
  options.add("attentions", grid.attentions, {.help = "one after another, instead of --attention"});
  options.refuse({"mode"}, "the suite compares several; name them with --modes");
  options.refuse({"input-size", "seq-length", "task", "labels", "data", "tokenizer"},
                 "this suite measures diffusion transformers on synthetic images");
}

Plan plan_dit(const Options& options, SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  // Every model with every size, before the first experiment.
  for (const std::string& model : command.dit.models.empty() ? std::vector{e.model} : command.dit.models) {
    ExperimentOptions tried = e;
    tried.model = model;
    if (!find_model(model, e.hub_cache).diffusion)
      user_error("--model {}: this suite measures diffusion transformers; presets are {}", model,
                 join(dit_preset_names(), ", "));
    for (const int64_t image : command.dit.image_sizes.empty() ? std::vector<int64_t>{0} : command.dit.image_sizes) {
      if (image > 0) tried.diffusion.image_size = image;
      for (const int64_t patch : command.dit.patch_sizes.empty() ? std::vector<int64_t>{0} : command.dit.patch_sizes) {
        if (patch > 0) tried.diffusion.patch = patch;
        model_source(tried);
      }
    }
  }
  check_options(e);
  check_world(command);
  std::vector<std::string> always = {"model", "batch-size", "warmup", "iterations", "optimizer"};
  std::vector<std::string> listed = {"modes",       "models",        "image-sizes", "patch-sizes",
                                     "batch-sizes", "accumulations", "attentions"};
  const auto instead = [&](bool given, const char* name) {
    if (!given) return;
    listed.push_back(name);
    std::erase(always, name);
  };
  instead(!command.dit.models.empty(), "model");
  instead(!command.dit.image_sizes.empty(), "image-size");
  instead(!command.dit.patch_sizes.empty(), "patch-size");
  instead(!command.dit.batch_sizes.empty(), "batch-size");
  instead(!command.dit.accumulations.empty(), "accumulation");
  instead(!command.dit.attentions.empty(), "attention");
  return dit_suite(command.dit, options.passed_on(always, and_own(listed)));
}

}  // namespace

Suite dit_suite_entry() {
  return {"dit-dp", "ways to clip on a diffusion transformer: memory by component, and time", set_dit_defaults,
          add_dit_options, plan_dit};
}

}  // namespace veil
