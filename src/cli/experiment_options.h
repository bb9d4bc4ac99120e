// The options of an experiment, defined once for profile, plan and suite.
#pragma once

#include "cli/options.h"
#include "suite/experiment.h"

namespace veil {

// What a step is: model, sharding, memory, types, optimizer, world. `searched` leaves out batch size and strategy, which the command itself varies.
void add_step_options(Options& options, ExperimentOptions& experiment, bool searched = false);
// After parsing: what the command line leaves open gets a language model's defaults where the model is one.
void use_language_defaults(const Options& options, ExperimentOptions& experiment);
// Whether and how the step is private; for commands that measure or plan one.
void add_private_step_options(Options& options, ExperimentOptions& experiment, const char* function = "clip");
// Learning rate, seed, device, ranks: what any run of steps needs. `several_worlds` leaves out the ranks, which the command itself varies.
void add_running_options(Options& options, ExperimentOptions& experiment, bool several_worlds = false);
// That, and how it is measured.
void add_measuring_options(Options& options, ExperimentOptions& experiment);
// `tiny`: seconds on two cores.
void add_experiment_presets(Options& options, bool measuring);

}  // namespace veil
