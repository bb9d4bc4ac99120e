#include "cli/train_words.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "cli/run_options.h"
#include "run/run_folder.h"
#include "run/train_config.h"

namespace veil {
namespace {

// What a resumed run takes from its folder, if the command line does not say otherwise.
void use_stored_run(Options& options, RunConfig& c, const RankInfo& info) {
  const auto folder = resumed_run_folder(c.training.resume, c.training.output_dir);
  if (!folder) return;
  // Before anything that the folder would have said is missing.
  if (info.rank == 0) {
    if (!std::filesystem::is_directory(*folder))
      field_error("resume", "{}: no such folder", *folder);
    check_run_folder(*folder);
  }
  std::vector<std::string> except = {"resume", "output-dir", "profile"};
  if (info.launcher != Launcher::none) except.push_back("ranks");
  const nlohmann::json stored = stored_settings(*folder);
  // It follows from the logical batch, the micro-batch and the ranks, which may be others now.
  if (options.given("total-batch-size") ||
      !stored.value("total-batch-size", nlohmann::json()).is_null())
    except.push_back("accumulation");
  options.set_stored(stored, except,
                     {{"max-grad-norm", "clip-norm"},
                      {"clip-norm", "max-grad-norm"},
                      {"max-grad-norm", "layer-norms"},
                      {"layer-norms", "max-grad-norm"}});
}

// The step that is traced.
std::optional<int64_t> profiled_step(const std::string& wish) {
  if (wish.empty() || wish == "none" || wish == name_of(ProfileKind::phases)) return {};
  if (wish == name_of(ProfileKind::kernels)) return 3;
  const bool number = wish.size() < 16 && wish.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoll(wish) < 1)
    user_error(
        "--profile {}: allowed is a step, from 1 on, phases, kernels or none; the others are for "
        "`veil profile`",
        wish);
  return std::stoll(wish);
}

void settle_profile(TrainCommand& command, const Options& options) {
  // VEIL_PROFILE is a list that all commands share: of it training knows phases.
  if (const char* watched = std::getenv("VEIL_PROFILE"); watched && !options.given("profile")) {
    for (const std::string& word : split(watched, ',')) {
      ProfileKind kind;
      if (!find_name(word, kind))
        user_error("VEIL_PROFILE={}: allowed are {}", watched,
                   join(all_names<ProfileKind>(), ", "));
      if (kind == ProfileKind::phases) command.profile = word;
    }
  }
  const bool phases = command.profile == name_of(ProfileKind::phases);
  command.config.measure.profile = {phases ? ProfileKind::phases : ProfileKind::none};
  command.config.training.profile_step = profiled_step(command.profile);
}

// Defaults if the command line leaves them open. Answers whether the model is a diffusion
// transformer.
bool use_train_defaults(const Options& options, RunConfig& c) {
  if (c.model.name.empty())
    user_error(
        "--model is missing: a preset (gpt2, dit-s/8), a folder with config.json or a fetched hub "
        "id; `veil train --help` shows examples");
  const ModelSource source = model_source(c);
  show_model_resolved(c, source);
  use_defaults(options, c, source, training_defaults());
  // A logical batch that is given alone is cut into `accumulation` micro-batches.
  if (options.given("total-batch-size") && !options.given("batch-size")) c.step.batch_size = 0;
  c.data.held_out_required = options.given("held-out");
  if (!source.diffusion) return false;
  if (!options.is_set("classes")) c.model.diffusion.classes.reset();  // the data decides
  return true;
}

// What only the words can tell: an option that was given and has no meaning in this run.
void check_words(const Options& options, const RunConfig& c, bool diffusion) {
  for (const char* name : {"seq-length", "tokenizer", "end-token", "text-key", "label-key",
                           "label-names", "samples"}) {
    if (diffusion && options.given(name))
      user_error("--{}: it belongs to a language model, and {} is a diffusion transformer", name,
                 c.model.name);
  }
  for (const char* name : {"shapes", "loader-threads", "label-drop"}) {
    if (!diffusion && options.given(name))
      user_error("--{}: it belongs to a diffusion transformer, and {} is none", name, c.model.name);
  }
  const ModelSource source = model_source(c);
  if (options.given("label-names") && source.config &&
      source.config->task != Task::sequence_classification)
    user_error(
        "--label-names: {} learns text, and no labels are read; pass --task "
        "sequence-classification too",
        c.model.name);
  const PrivacyConfig& p = c.privacy;
  const bool wanted = p.epsilon || p.sigma;
  if (wanted && !p.is_private() && options.given("mode"))
    user_error("--mode no_dp with --{}: allowed is a private mode, as auto",
               p.epsilon ? "epsilon" : "sigma");
  if (!wanted && !p.is_private()) {
    for (const char* name : {"delta",          "clip-norm", "clip",        "layer-norms",
                             "clip-quantile",  "clip-rate", "count-noise", "sampler",
                             "privacy-unit",   "unit-key",  "accountant",  "rng",
                             "data-size",      "max-batch", "secret-file", "allow-insecure-noise",
                             "audit-canaries", "rule",      "pass-plan",   "tile-size",
                             "memory-budget"}) {
      if (options.given(name))
        user_error("--{}: it belongs to a private run; pass --epsilon or --sigma too", name);
    }
  }
  for (const char* name : {"clip-quantile", "clip-rate", "count-noise"}) {
    if (options.given(name) && p.clip != privacy::ClipFunction::adaptive)
      user_error("--{}: it goes with --clip adaptive", name);
  }
}

}  // namespace

bool parse_train(const CommandCall& call, const RankInfo& info, Options& options,
                 TrainCommand& command) {
  add_train_options(options, command);
  if (!options.parse_call(call)) return false;
  use_stored_run(options, command.config, info);
  settle_profile(command, options);
  const bool diffusion = use_train_defaults(options, command.config);
  if (command.bf16) {
    if (options.given("compute") && command.config.step.compute != Precision::bf16)
      user_error("--bf16 and --compute {}: allowed is one of them",
                 name_of(command.config.step.compute));
    command.config.step.compute = Precision::bf16;
  }
  check_words(options, command.config, diffusion);
  return true;
}

std::optional<TrainWords> read_train_words(const std::vector<std::string>& words,
                                           const RankInfo& info) {
  TrainCommand command;
  Options options("train", "the options of the run");
  if (!parse_train({.arguments = words}, info, options, command)) return {};
  return TrainWords{command.config, options.json(), command.collective_timeout_s};
}

}  // namespace veil
