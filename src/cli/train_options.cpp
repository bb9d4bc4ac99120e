#include "cli/train_options.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "privacy/journal.h"
#include "train/checkpoint.h"

namespace veil {
namespace {

std::string shown(const nlohmann::json& value) {
  return value.is_null() ? "nothing" : value.is_string() ? value.get<std::string>() : value.dump();
}

bool same_setting(const nlohmann::json& a, const nlohmann::json& b) {
  if (a == b) return true;
  if (!a.is_string() || !b.is_string()) return false;
  const std::string one = a.get<std::string>(), other = b.get<std::string>();
  std::error_code ignored;
  return canonical(one) == canonical(other) ||
         std::filesystem::equivalent(one, other, ignored);  // two paths of one folder
}

void settle_private_options(TrainCommand& c, const Options& options) {
  PrivacyChoice& p = c.privacy;
  if (sets_zero3(p.clip_choice.mode)) c.experiment.strategy = Strategy::zero3;
  // In DP-SGD's own words max_grad_norm is C; plain training's default does not count.
  if (options.given("max-grad-norm")) {
    if (p.clip_norm)
      user_error("--max-grad-norm {} and --clip-norm {}: in a private run they mean the same, one of them is allowed",
                 c.max_grad_norm, *p.clip_norm);
    if (!(c.max_grad_norm > 0))
      user_error("--max-grad-norm {}: in a private run it is C; allowed is more than 0", c.max_grad_norm);
    p.clip_norm = c.max_grad_norm;
  }
  c.max_grad_norm = 0;
  if (p.unit == privacy::PrivacyUnit::document && c.samples == data::SampleKind::packed) {
    if (options.given("samples"))
      user_error(
          "--privacy-unit document with --samples packed: packed sequences mix documents; allowed is --samples "
          "document");
    c.samples = data::SampleKind::document;
  }
}

}  // namespace

void add_train_options(Options& options, TrainCommand& c) {
  options.section("data");
  options.add(
      "data", c.data,
      {.aliases = {"data_folder"},
       .help = "text: folder of .txt, .json and .jsonl files, or a token store of `veil tokenize`; images: folder "
               "of PNG and JPEG files, a sub-folder a class, or shapes, drawn by rule",
       .value = "PATH"});
  options.add("tokenizer", c.tokenizer,
              {.help = "tokenizer.json, a folder that holds one, or byte; by default the model's own, else byte",
               .value = "PATH"});
  options.add("text-key", c.corpus.text_key, {.help = "what holds the text in an object", .value = "KEY"});
  options.add("label-key", c.corpus.label_key,
              {.help = "what holds the label; `label` for sequence classification", .value = "KEY"});
  options.add("label-names", c.corpus.label_names, {.help = "labels that are words: their names, from 0 on"});
  options.add("skip-bad", c.corpus.skip_bad,
              {.help = "leave bad lines or images out and count them, instead of stopping"});
  options.add("samples", c.samples,
              {.help = "what one sample is: packed text, or one document a sequence; labelled for classification"});
  options.add("held-out", c.held_out,
              {.help = "part of the documents or images kept for evaluation, chosen by a hash of their text or file",
               .minimum = 0,
               .maximum = 0.9});
  options.add("evaluation-samples", c.evaluation_samples,
              {.help = "held-out samples an evaluation takes; 0: all", .minimum = 0});
  options.add("shapes", c.shapes, {.help = "how many images --data shapes has", .minimum = 1, .maximum = 1 << 30});
  options.add("loader-threads", c.loader_threads,
              {.help = "batches of images that are decoded ahead at a time", .minimum = 1, .maximum = 256});
  options.section("model and step");
  add_step_options(options, c.experiment);
  options.section("training");
  add_running_options(options, c.experiment);
  options.add("steps", c.steps, {.aliases = {"num_steps", "max_steps"}, .help = "steps in all", .minimum = 1});
  options.add("epochs", c.epochs, {.help = "instead of --steps: times that every sample is seen", .minimum = 1e-9});
  options.add("schedule", c.schedule, {.help = "of the learning rate after its warm-up"});
  options.add("warmup-steps", c.warmup_steps, {.help = "steps over which the learning rate rises", .minimum = 0});
  options.add("minimum-lr", c.minimum_lr_ratio,
              {.help = "where the schedule ends, as a part of --learning-rate", .minimum = 0, .maximum = 1});
  options.add("beta1", c.beta1, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("beta2", c.beta2, {.help = "of adamw", .minimum = 0, .maximum = 1});
  options.add("epsilon-adam", c.adam_epsilon, {.help = "of adamw", .minimum = 0});
  options.add("max-grad-norm", c.max_grad_norm,
              {.help = "of plain training: scale the whole gradient down to this norm; 0: never", .minimum = 0});
  options.add("label-drop", c.label_drop,
              {.help = "of a diffusion transformer: part of the samples whose class is hidden, for guidance",
               .minimum = 0,
               .maximum = 1});
  options.add("ema", c.average,
              {.aliases = {"ema_decay"},
               .help = "decay of the weights' moving average, which is then what --export writes; 0: none. 0.999 for a "
                       "diffusion transformer",
               .minimum = 0,
               .maximum = 0.999999});
  add_privacy_options(options, c.privacy);
  options.section("the run's folder, and what is said");
  options.add("evaluate-every", c.evaluate_every, {.help = "steps; 0: at the end only", .minimum = 0});
  options.add("checkpoint-every", c.checkpoint_every, {.help = "steps; 0: at the end only", .minimum = 0});
  options.add(
      "log-every", c.log_every,
      {.aliases = {"logging_steps"}, .help = "steps between two lines; metrics.jsonl has every step", .minimum = 1});
  options.add("keep-checkpoints", c.keep_checkpoints, {.help = "newest ones kept", .minimum = 1, .maximum = 1000000});
  options.add("output-dir", c.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add(
      "resume", c.resume,
      {.help = "go on with the run in this folder, or the newest of --output-dir", .bare = "latest", .value = "DIR"});
  options.add(
      "export", c.export_folder,
      {.help = "at the end, write the model here (with --ema its average): config.json, model.safetensors and the "
               "tokenizer's files. --model DIR takes it again, and transformers loads a language model",
       .value = "DIR"});
  options.add(
      "profile", c.profile,
      {.aliases = {"profile_step", "use_profiler"},
       .help = "write a trace of operators and kernels of this step and the next; the bare flag and `kernels` are 3. "
               "`phases`: what the steps' time went to, at the end",
       .bare = "3",
       .value = "STEP"});
  options.add("json", c.json, {.help = "print lines as JSON"});
}

namespace {

// The step that is traced.
std::optional<int64_t> profiled_step(const std::string& wish) {
  if (wish.empty() || wish == "none" || wish == name_of(ProfileKind::phases)) return {};
  if (wish == name_of(ProfileKind::kernels)) return 3;
  const bool number = wish.size() < 16 && wish.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoll(wish) < 1)
    user_error("--profile {}: allowed is a step, from 1 on, phases, kernels or none; the others are for `veil profile`",
               wish);
  return std::stoll(wish);
}

}  // namespace

void use_train_defaults(const Options& options, TrainCommand& c) {
  use_language_defaults(options, c.experiment);
  c.held_out_asked = options.given("held-out");
  c.is_diffusion = model_source(c.experiment).diffusion.has_value();
  if (!c.is_diffusion) return;
  auto open = [&](const char* name) { return !options.given(name); };
  if (open("classes")) c.experiment.diffusion.classes.reset();  // the data decides
  if (open("data")) c.data = kShapes;
  if (open("learning-rate")) c.experiment.learning_rate = 1e-4;
  if (open("schedule")) c.schedule = LearningRateKind::constant;
  if (open("beta2")) c.beta2 = 0.999;
  if (open("ema")) c.average = 0.999;
}

void check_train_options(TrainCommand& c, const Options& options) {
  // VEIL_PROFILE is a list that all commands share: of it training knows phases.
  if (const char* watched = std::getenv("VEIL_PROFILE"); watched && !options.given("profile")) {
    for (const std::string& word : split(watched, ',')) {
      ProfileKind kind;
      if (!find_name(word, kind))
        user_error("VEIL_PROFILE={}: allowed are {}", watched, join(all_names<ProfileKind>(), ", "));
      if (kind == ProfileKind::phases) c.profile = word;
    }
  }
  c.profile_phases = c.profile == name_of(ProfileKind::phases);
  for (const char* name : {"seq-length", "tokenizer", "text-key", "label-key", "label-names", "samples"}) {
    if (c.is_diffusion && options.given(name))
      user_error("--{}: it belongs to a language model, and {} is a diffusion transformer", name, c.experiment.model);
  }
  for (const char* name : {"shapes", "loader-threads", "label-drop"}) {
    if (!c.is_diffusion && options.given(name))
      user_error("--{}: it belongs to a diffusion transformer, and {} is none", name, c.experiment.model);
  }
  if (c.data.empty()) user_error("--data is missing: {}", "a folder of text, or a token store of `veil tokenize`");
  c.profile_step = profiled_step(c.profile);
  if (c.experiment.tf32) user_error("--tf32: training multiplies fp32 whole; `veil profile` can measure it");
  settle_privacy(options, c.privacy);
  if (c.privacy.is_private()) settle_private_options(c, options);
  if (c.experiment.simulate_world) user_error("--simulate-world: training needs real ranks; `veil profile` simulates");
  if (c.steps && c.epochs) user_error("--steps {} and --epochs {}: one of them is allowed", *c.steps, *c.epochs);
  if (!c.steps && !c.epochs) c.epochs = 1;
  const ModelSource source = model_source(c.experiment);
  if (!source.config && !source.diffusion)
    user_error(
        "--model {}: `veil train` trains language models and diffusion transformers; `veil profile` measures the "
        "linear stack",
        c.experiment.model);
  if (source.config && source.config->task == Task::sequence_classification) {
    c.samples = data::SampleKind::labelled;
    if (c.corpus.label_key.empty()) c.corpus.label_key = "label";
  } else if (c.samples == data::SampleKind::labelled) {
    user_error("--samples labelled: pass --task sequence-classification too");
  }
  if (!c.export_folder.empty()) check_folder_can_be_made(c.export_folder);
  if (c.resume.empty()) check_folder_can_be_made(c.output_dir);
}

void check_resumed_options(const std::string& run_folder, const Options& options, int64_t global_batch,
                           bool is_private) {
  const auto checkpoint = newest_checkpoint(run_folder);
  const bool was_private =
      privacy::holds_journal(run_folder) || (checkpoint && checkpoint_state(*checkpoint).contains("privacy"));
  if (was_private && !is_private)
    user_error("the run in {} is private: pass --epsilon or --sigma as before, or train in another folder", run_folder);
  if (!checkpoint) return;
  if (is_private && !was_private)
    user_error("the run in {} is not private, and noise added now would not make it so: begin a new one", run_folder);
  const nlohmann::json state = checkpoint_state(*checkpoint), begun = state.value("settings", nlohmann::json::object());
  const nlohmann::json now = options.json();
  for (const char* name : {"model",    "task",      "labels",     "layers",     "seq-length", "seed",      "samples",
                           "held-out", "optimizer", "image-size", "patch-size", "channels",   "classes",   "hidden-dim",
                           "heads",    "shapes",    "label-drop", "ema",        "freeze",     "train-only"}) {
    if (!begun.contains(name) || same_setting(begun[name], now[name])) continue;
    user_error(
        "--{} {}: the run in {} was begun with {}; strategy, ranks, checkpointing and device may change, this may not",
        name, shown(now[name]), run_folder, shown(begun[name]));
  }
  const int64_t began_with = state.value("global_batch", global_batch);
  if (began_with != global_batch)
    user_error(
        "--batch-size: {} samples a step over all ranks, the run in {} was begun with {}; pass --total-batch-size {}",
        global_batch, run_folder, began_with, began_with);
}

}  // namespace veil
