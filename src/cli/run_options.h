// The command line's view of RunConfig: each option is defined once here, for every command that
// has it. A default that differs between commands is set on the value before its options are added.
#pragma once

#include "cli/options.h"
#include "run/config.h"
#include "run/defaults.h"

namespace veil {

// What a step is: model, sharding, memory, types, optimizer, world. `searched` leaves out batch
// size and strategy, which the command itself varies.
void add_step_options(Options& options, RunConfig& config, bool searched = false);
// Single ones of these, for commands that have no others. `device_help`: what --device means.
void add_batch_option(Options& options, RunConfig& config);
void add_attention_option(Options& options, RunConfig& config);
void add_compute_option(Options& options, RunConfig& config);
void add_device_option(
    Options& options, RunConfig& config,
    const char* device_help = "device to run on; auto uses a GPU if there is one");
// For every command that writes files: whether one that Veil did not write may be replaced.
void add_overwrite_option(Options& options, bool& overwrite,
                          const char* help =
                              "replace files that exist; without it only files that "
                              "Veil itself wrote are replaced");
// Before parsing: the help lists the defaults of this table, except for options that the command
// sets itself. The options are bound to `config`, which is left as it was.
void show_defaults(Options& options, RunConfig& config, const std::vector<UsualValue>& table,
                   const std::vector<std::string>& except = {});
// After parsing: what was not given gets the table's default that applies to the run.
void use_defaults(const Options& options, RunConfig& config, const ModelSource& source,
                  const std::vector<UsualValue>& table);
// Settings of a diffusion transformer, as its config says them.
void show_model_resolved(RunConfig& config, const ModelSource& source);
// Both, for commands that measure or plan a step.
void use_model_defaults(const Options& options, RunConfig& config);
// Whether and how the step is private; for commands that measure or plan one. They protect nobody,
// so the noise is philox's unless it is set otherwise. `function`: the option of the clip function.
void add_private_step_options(Options& options, RunConfig& config, const char* function = "clip");
// Of these: rule, pass plan, tile and memory, for a command that takes several modes.
void add_clip_part_options(Options& options, ClipChoice& choice);
// The clip function and C. `or_max_grad_norm`: the command has no other meaning for the name that
// DP-SGD's libraries give C.
void add_clip_function_options(Options& options, PrivacyConfig& privacy, const char* function,
                               bool or_max_grad_norm);
// All of a private training run.
void add_privacy_options(Options& options, PrivacyConfig& privacy);
// Learning rate, seed, device, ranks: what any run of steps needs. `several_worlds` leaves out the
// ranks, which the command itself varies.
void add_running_options(Options& options, RunConfig& config, bool several_worlds = false);
// How long ranks wait for each other (RankInfo::collective_timeout_s).
void add_timeout_option(Options& options, double& seconds);
// The text or the images that steps read, and the tokenizer.
void add_data_options(Options& options, RunConfig& config);
void add_chat_template_option(Options& options, data::CorpusOptions& corpus);
// How text is read from files. `label_names`: the name of the option for labels that are words.
void add_corpus_options(Options& options, data::CorpusOptions& corpus, const char* label_names);
// add_running_options, add_data_options, and how a step is measured.
void add_measuring_options(Options& options, RunConfig& config);
// What --dry-run answers: every setting as it was resolved.
void print_settings(const Options& options, bool json);
// `tiny`: seconds on two cores.
void add_experiment_presets(Options& options, bool measuring);

}  // namespace veil
