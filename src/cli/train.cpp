// veil train: a language model on a folder of text, or a diffusion transformer on images.
#include "run/train.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>

#include "base/clock.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/table.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/hub_environment.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "cli/train_words.h"
#include "comm/stop_signals.h"
#include "profile/memory.h"
#include "run/run_folder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLineColumns = 100;

std::string describe_devices(const TrainStart& start) {
  if (!start.device.is_cuda()) return quantity(start.world, "CPU rank");
  if (start.world > 1 && start.config.placement.share_gpu)
    return fmt::format("{} ranks that share a GPU", start.world);
  return quantity(start.world, "GPU");
}

struct TrainCommand {
  RunConfig config;
  int64_t log_every = 1;
  std::string profile;  // as it was given
  bool json = false, dry_run = false;
  bool bf16 = false;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
};

void add_train_options(Options& options, TrainCommand& command) {
  RunConfig& c = command.config;
  c.placement.prices_file = prices_file_from_environment();
  c.model.name = "";  // a person names the model
  add_data_options(options, c);
  add_corpus_options(options, c.data.corpus, "label-names");
  options.add("samples", c.data.samples,
              {.help = "what one sample is: packed text (the default), or one document per "
                       "sequence; labelled for classification"});
  options.add(
      "held-out", c.data.held_out,
      {.help =
           "fraction of documents or images kept for evaluation, chosen by a hash of their content",
       .minimum = 0,
       .maximum = 0.9});
  options.add("evaluation-samples", c.training.evaluation_samples,
              {.help = "held-out samples per evaluation; 0: all", .minimum = 0});
  options.section("diffusion transformers", "diffusion");
  options.add("shapes", c.data.shapes,
              {.help = "how many images --data shapes has", .minimum = 1, .maximum = 1 << 30});
  options.add("loader-threads", c.data.loader_threads,
              {.help = "batches of images that are decoded ahead", .minimum = 1, .maximum = 256});
  add_step_options(options, c);
  options.add("bf16", command.bf16, {.help = "the same as --compute bf16"});
  add_running_options(options, c);
  add_timeout_option(options, command.collective_timeout_s);
  options.section("training");
  options.add(
      "steps", c.training.steps,
      {.aliases = {"num_steps", "max_steps"}, .help = "total number of steps", .minimum = 1});
  options.add("epochs", c.training.epochs,
              {.aliases = {"num_train_epochs", "num_epochs"},
               .help = "passes over the data, instead of --steps",
               .minimum = 1e-9});
  options.section("optimizer");
  options.add("schedule", c.optimizer.schedule,
              {.aliases = {"lr_scheduler_type"},
               .help = "how the learning rate changes after the warm-up"});
  options.add("warmup-steps", c.optimizer.warmup_steps,
              {.help = "steps over which the learning rate rises from 0", .minimum = 0});
  options.add("minimum-lr", c.optimizer.minimum_ratio,
              {.help = "learning rate at the end of the schedule, as a fraction of --learning-rate",
               .minimum = 0,
               .maximum = 1});
  options.add("beta1", c.optimizer.beta1,
              {.aliases = {"adam_beta1"},
               .help = "AdamW's first-moment decay",
               .minimum = 0,
               .maximum = 1});
  options.add("beta2", c.optimizer.beta2,
              {.aliases = {"adam_beta2"},
               .help = "AdamW's second-moment decay",
               .minimum = 0,
               .maximum = 1});
  options.add("epsilon-adam", c.optimizer.epsilon,
              {.aliases = {"adam_epsilon"},
               .help = "AdamW's epsilon, added to the root of the second moment",
               .minimum = 0});
  options.add("max-grad-norm", c.optimizer.max_grad_norm,
              {.help = "of a run that is not private: scale the whole gradient down to this norm; "
                       "0: never. In a private run it means --clip-norm",
               .minimum = 0,
               .fallback = "1 not private"});
  options.section("diffusion transformers", "diffusion");
  options.add("label-drop", c.data.label_drop,
              {.help = "fraction of samples whose class is hidden, for classifier-free guidance",
               .minimum = 0,
               .maximum = 1});
  options.section("optimizer");
  options.add("ema", c.optimizer.average,
              {.aliases = {"ema_decay"},
               .help = "decay of the weights' moving average, which is then what --export writes; "
                       "0: none",
               .minimum = 0,
               .maximum = 0.999999});
  add_privacy_options(options, c.privacy);
  options.add("unit-key", c.data.corpus.user_key,
              {.help = "of --privacy-unit user: the key of the user in a JSON object; for images "
                       "folder (class/user/file), or a .jsonl listing with file and user",
               .value = "KEY"});
  options.section("output");
  options.add("evaluate-every", c.training.evaluate_every,
              {.aliases = {"eval_steps"},
               .help = "evaluate on held-out data every N steps; 0: only at the end",
               .minimum = 0});
  options.add("checkpoint-every", c.training.checkpoint_every,
              {.aliases = {"save_steps"},
               .help = "write a checkpoint every N steps; 0: only at the end",
               .minimum = 0});
  options.add("log-every", command.log_every,
              {.aliases = {"logging_steps"},
               .help = "print every N steps; metrics.jsonl has every step",
               .minimum = 1});
  options.add("keep-checkpoints", c.training.keep_checkpoints,
              {.aliases = {"save_total_limit"},
               .help = "number of newest checkpoints to keep",
               .minimum = 1,
               .maximum = 1000000});
  options.add("output-dir", c.training.output_dir,
              {.help = "parent of the run's folder", .value = "DIR"});
  options.add(
      "resume", c.training.resume,
      {.aliases = {"resume_from_checkpoint"},
       .help = "continue the run in this folder, or the newest of --output-dir, such as one that "
               "a signal stopped (exit code 4); auto: the newest if there is one, otherwise "
               "a new run",
       .bare = "latest",
       .value = "DIR"});
  options.add(
      "export", c.training.export_folder,
      {.help = "at the end, write the model here (with --ema its average): config.json, "
               "model.safetensors and the tokenizer's files. --model DIR takes it again, and "
               "transformers loads a language model. With --lora or --adapter only the adapters "
               "are written, as PEFT reads them",
       .value = "DIR"});
  options.add(
      "merge", c.training.merge,
      {.help = "let --export write the whole model with the adapters added to its weights"});
  add_overwrite_option(options, c.training.overwrite,
                       "let --export replace the files of an earlier export in its folder; other "
                       "files there stay");
  options.add("profile", command.profile,
              {.aliases = {"profile_step", "use_profiler"},
               .help = "write a trace of operators and kernels of this step and the next; the bare "
                       "flag and `kernels` are 3. `phases`: what the steps' time went to, at the "
                       "end",
               .bare = "3",
               .value = "STEP"});
  options.add("json", command.json, {.help = "print lines as JSON"});
  options.add(
      "dry-run", command.dry_run,
      {.help = "print the settings that the run would have, as JSON with --json, and stop"});
  show_defaults(options, c, training_defaults());
  options.defaults("privacy-unit", {{"document", "private, language model", "--samples is given"},
                                    {"sample", "private, diffusion"}});
  options.brief(
      {"data",     "model",         "seq-length", "task",          "batch-size", "total-batch-size",
       "strategy", "checkpointing", "compute",    "learning-rate", "device",     "ranks",
       "steps",    "epochs",        "epsilon",    "delta",         "clip-norm",  "output-dir",
       "resume",   "export",        "lora",       "adapter",       "dry-run"},
      {"veil train --model Qwen/Qwen2.5-0.5B --data my_texts --export tuned",
       "veil train --model Qwen/Qwen2.5-0.5B --data my_chats.jsonl --lora 16 --epsilon 8 "
       "--delta 1e-6 --export adapter"});
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

void print_notice(const std::string& line) {
  fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"),
             escape_controls(in_options(UserError(line)), /*keep_lines=*/true));
}

// No one learning rate suits private SGD: its steps are as long as the clip norm times the rate,
// whatever the model.
void warn_of_learning_rate(const Options& options, const RunConfig& c) {
  const bool is_private = c.privacy.epsilon || c.privacy.sigma || c.privacy.is_private();
  if (!is_private || options.given("learning-rate") || c.optimizer.kind == OptimizerKind::adamw)
    return;
  print_notice(fmt::format(
      "--learning-rate is left at its default of {} for private {}, which may learn nothing: pass "
      "one that suits the model, or --optimizer adamw",
      c.optimizer.learning_rate, name_of(c.optimizer.kind)));
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

// What the run tells, for a person or as JSON lines. Rank 0's.
class TrainPrinter {
 public:
  TrainPrinter(TrainCommand& command, Options& options) : command_(command), options_(options) {}

  TrainingEvents events() {
    TrainingEvents events;
    events.on_notice = [this](const std::string& line) {
      progress_.clear();
      print_notice(line);
    };
    events.on_start = [this](const TrainStart& start) { begin(start); };
    events.on_step = [this](const StepEvent& event) { step(event); };
    events.on_evaluation = [this](const EvaluationEvent& event) { evaluation(event); };
    events.on_checkpoint = [this](int64_t step) {
      progress_.clear();
      if (!command_.json) fmt::print("checkpoint after step {}\n", step);
    };
    return events;
  }

  const std::string& folder() const { return folder_; }  // known once the run has started

  void end(const TrainResult& result) {
    progress_.clear();
    if (result.privacy && command_.json)
      fmt::print("{}\n", Json{{"privacy", result.privacy->guarantee_json}}.dump());
    if (result.audit && command_.json)
      fmt::print("{}\n", Json{{"audit", to_json(*result.audit)}}.dump());
    if (result.phases) print_phases(result);
    if (command_.json) return;
    if (!result.finished) fmt::print("stopped; `--resume {}` continues it\n", result.folder);
    if (result.privacy && result.privacy->budget_ended)
      fmt::print("ended after step {} of {}: one more would spend more than epsilon {:g}\n",
                 result.steps, result.privacy->steps, *command_.config.privacy.epsilon);
    if (result.privacy) fmt::print("\nprivate   {}\n", result.privacy->guarantee);
    if (result.audit) print_audit(*result.audit);
    fmt::print("\nrun       {}\nmetrics   {}\ncurves    tensorboard --logdir {}\n", result.folder,
               join_path(result.folder, "metrics.jsonl"), join_path(result.folder, "tensorboard"));
    if (peak_tflops_ > 0)
      fmt::print(
          "mfu       3 x forward FLOPs of products and causal attention, of {} TFLOP/s dense peak "
          "per GPU\n",
          peak_tflops_);
    const std::string& exported = command_.config.training.export_folder;
    if (result.finished && !exported.empty()) fmt::print("model     {}\n", exported);
  }

 private:
  static void print_audit(const AuditRecord& audit) {
    const AuditOneRun& run = *audit.one_run;
    fmt::print(
        "audit     {} of {} guesses about {} canaries are right: epsilon is at least {:.4f} at "
        "{:g} "
        "% confidence, the run claims {:.4f}; not private, {}\n",
        run.correct, run.guesses, run.canaries, audit.epsilon_low, 100 * audit.confidence,
        audit.claim.epsilon, audit.verdict);
  }

  void begin(const TrainStart& start) {
    command_.config = start.config;  // the table shows it settled
    steps_ = start.steps;
    folder_ = start.folder;
    peak_tflops_ = start.peak_tflops;
    private_ = start.privacy.has_value();
    if (start.task.images) patches_ = start.task.images->patches;
    if (command_.json) {
      if (!private_) return;
      fmt::print("{}\n", Json{{"privacy_plan", start.privacy->json}}.dump());
      for (const std::string& warning : start.privacy->mechanism.warnings()) print_notice(warning);
      return;
    }
    options_.settle_defaults();
    fmt::print("{}  all other settings are the defaults; {} holds every one\n\n",
               options_.short_table({"model"}), join_path(start.folder, kRunSettings));
    print_task(start);
    const char* const sample = patches_ > 0 ? "image" : "sample";
    fmt::print("step      {} on {}, graph {}\n",
               private_ ? fmt::format("{:g} {}s expected, {} per micro-batch,",
                                      expected_batch(start.config, start.world), sample,
                                      start.config.step.batch_size)
                        : quantity(start.global_batch, sample),
               describe_devices(start), start.graph);
    if (private_) {
      print_privacy(*start.privacy, start.world);
    } else {
      fmt::print(
          "private   no: plain training, nothing is clipped per sample and no noise is added\n");
    }
    if (start.done > 0) fmt::print("resumed   after step {}\n", start.done);
    fmt::print("\n");
  }

  static std::string of_users(const TaskFacts& task) {
    return task.users > 0 ? " by " + quantity(task.users, "user") : "";
  }

  void print_task(const TrainStart& start) const {
    const TaskFacts& task = start.task;
    const std::string parameters = format_count(static_cast<double>(start.parameters));
    if (const auto& text = task.text) {
      fmt::print("model     {}: {} parameters, {}, attention {}\n", task.model, parameters,
                 text->task, task.attention);
      fmt::print("weights   {}\n", start.weights);
      fmt::print("data      {}, {} tokens ({}); {} of {}, {} held out\n",
                 quantity(text->documents, "document"),
                 format_count(static_cast<double>(text->tokens)), text->tokenizer,
                 quantity(task.samples, "sample") + of_users(task),
                 quantity(text->sample_tokens, "token"), task.held_out);
      if (!text->records.empty()) fmt::print("records   {}\n", text->records);
      const auto or_none = [](const std::string& token) { return token.empty() ? "none" : token; };
      fmt::print("tokens    end {}, padding {}\n", or_none(text->end), or_none(text->padding));
    }
    if (const auto& images = task.images) {
      fmt::print("model     {}: {} parameters, {} x {} x {} images in {}, {}, attention {}\n",
                 task.model, parameters, images->image_size, images->image_size, images->channels,
                 quantity(images->patches, "patch", "patches"),
                 quantity(images->model_classes, "class", "classes"), task.attention);
      fmt::print("weights   {}\n", start.weights);
      fmt::print("data      {}: {}, {} held out, in {}{}\n", start.config.data.path,
                 quantity(task.samples, "image") + of_users(task), task.held_out,
                 quantity(images->data_classes, "class", "classes"),
                 private_ ? ", whose number and names are declared public" : "");
    }
  }

  void print_privacy(const PrivateStart& p, int world) const {
    fmt::print(
        "private   yes: each sample's gradient is clipped, and noise is added to their sum\n");
    for (const std::string& line : p.mechanism.summary()) fmt::print("  {}\n", line);
    if (std::isfinite(p.spends.epsilon))
      fmt::print("  spends      epsilon {:.4f} in {}, {:.4g} epochs\n", p.spends.epsilon,
                 quantity(p.steps, "step"), static_cast<double>(p.steps) * p.mechanism.q());
    if (p.poisson_epsilon)
      fmt::print(
          "  gap         epsilon {:.4f} for shuffled batches; Poisson samples of the same size "
          "would spend {:.4f}, which does not hold here\n",
          p.spends.epsilon, *p.poisson_epsilon);
    std::vector<std::string> rules;
    for (const privacy::NormRule rule : p.method.rules) {
      if (std::find(rules.begin(), rules.end(), name_of(rule)) == rules.end())
        rules.push_back(name_of(rule));
    }
    fmt::print("  computed    {}, {} (mode {}), noise by {}\n",
               rules.empty() ? "per-sample gradients" : join(rules, " and "),
               name_of(p.method.pass), name_of(command_.config.privacy.method.mode),
               name_of(command_.config.privacy.rng));
    if (command_.config.privacy.rng == NoiseGenerator::philox)
      fmt::print("  WARNING     the noise is not cryptographic: do not release this model\n");
    if (world > 1)
      fmt::print("  keys        {}\n",
                 p.keys_sent ? "sent to the other ranks unencrypted; --secret-file on every rank "
                               "avoids that"
                             : "derived on each rank from its own --secret-file; none is sent");
    fmt::print(
        "  not private loss, samples drawn, bad samples, memory, times, held-out figures: kept "
        "owner-only, not exported\n");
    if (!p.resumes) return;
    if (p.replays) {
      fmt::print("  continues   as an exact replay, under the run's own nonce\n");
    } else {
      fmt::print("  continues   under a fresh nonce, for {}{}\n", p.why_fresh,
                 p.lost_steps > 0
                     ? fmt::format("; {} begun before {} counted",
                                   quantity(p.lost_steps, "step that was", "steps that were"),
                                   p.lost_steps == 1 ? "stays" : "stay")
                     : "");
    }
    if (p.last_step < p.steps)
      fmt::print("  budget      allows {} of {}\n", p.last_step, quantity(p.steps, "step"));
  }

  std::string rate_text(double tokens_per_second) const {
    return patches_ > 0
               ? format_count(tokens_per_second / static_cast<double>(patches_)) + " images/s"
               : format_count(tokens_per_second) + " tokens/s";
  }

  void step(const StepEvent& event) {
    const StepLine& line = event.line;
    if (command_.json) fmt::print("{}\n", event.metrics.dump());
    if (command_.json) return;
    progress_.clear();
    if (line.step % command_.log_every == 0 || line.step == steps_)
      fmt::print("{}\n", step_text(event));
    std::fflush(stdout);
    if (is_terminal(stderr) && line.step < steps_)
      progress_.show(
          fmt::format("{} step {} of {}", progress_bar(line.step, steps_), line.step, steps_),
          event.left_seconds);
  }

  std::string step_text(const StepEvent& event) const {
    const StepLine& line = event.line;
    const std::string left = format_duration(event.left_seconds) + " left";
    // Each with its rank: what is least needed goes first if the line is too long.
    std::vector<LinePart> parts = {
        {fmt::format("step {:>{}}/{}", line.step, std::to_string(steps_).size(), steps_)}};
    if (line.privacy) {
      const PrivateLine& p = *line.privacy;
      parts.push_back({fmt::format("epsilon {:.4f}", p.epsilon)});
      parts.push_back({fmt::format("C {:.3g}", p.clip_norm), 4});
      parts.push_back({fmt::format("lr {:.2e}", line.learning_rate), 2});
      parts.push_back({fmt::format("| not private: loss {}",
                                   p.samples > 0 ? fmt::format("{:.4f}", line.loss) : "-")});
      parts.push_back({quantity(p.samples, patches_ > 0 ? "image" : "sample"), 3});
      if (p.bad_samples > 0) parts.push_back({fmt::format("({} bad)", p.bad_samples)});
      parts.push_back({rate_text(line.tokens_per_second), 6});
      parts.push_back({format_bytes(line.peak_bytes), 5});
      parts.push_back({left, 1});
    } else {
      parts.push_back({fmt::format("loss {:.4f}", line.loss)});
      parts.push_back({fmt::format("norm {:.3f}", line.grad_norm), 2});
      parts.push_back({fmt::format("lr {:.2e}", line.learning_rate), 1});
      parts.push_back({rate_text(line.tokens_per_second), 3});
      if (event.mfu > 0) parts.push_back({fmt::format("mfu {:.1f}%", 100 * event.mfu), 4});
      parts.push_back({format_bytes(line.peak_bytes), 5});
      parts.push_back({left});
    }
    return fitted_line(parts, kLineColumns);
  }

  void evaluation(const EvaluationEvent& event) {
    const EvaluationLine& line = event.line;
    progress_.clear();
    if (command_.json) {
      fmt::print("{}\n", event.metrics.dump());
      return;
    }
    const std::string score =
        line.accuracy     ? fmt::format(", accuracy {:.1f}% of {}", 100 * *line.accuracy,
                                        quantity(line.samples, "sample"))
        : line.tokens > 0 ? fmt::format(", perplexity {:.2f} over {}", line.perplexity(),
                                        quantity(line.tokens, "token"))
                          : " over " + quantity(line.samples, "image");
    fmt::print("held out{}: loss {:.4f}{}{}\n", private_ ? " (not private)" : "", line.loss, score,
               line.of_average ? ", of the weights' average" : "");
  }

  // Not private: micro-batches that were drawn take their time.
  void print_phases(const TrainResult& result) const {
    const PhaseTimes& times = *result.phases;
    Table table({"phase", "ms per step", "share"});
    const auto add = [&](const std::string& name, double ms) {
      table.row(
          {name, fmt::format("{:.3f}", ms), fmt::format("{:.1f} %", 100 * ms / times.step_ms)});
    };
    for (const auto& [phase, ms] : times.compute_ms) add(phase, ms);
    for (const auto& [lane, time] : times.lanes) add("waiting for " + lane, time.exposed_ms);
    add("gap", times.gap_ms);
    fmt::print(command_.json ? stderr : stdout, "\nphases of {}{}\n{}\n",
               quantity(result.timed_steps, "step"), private_ ? " (not private)" : "",
               table.text());
  }

  TrainCommand& command_;
  Options& options_;
  std::string folder_;
  Progress progress_;
  int64_t steps_ = 0, patches_ = 0;  // patches of an image; 0: text
  double peak_tflops_ = 0;
  bool private_ = false;
};

std::atomic<bool> trains = false;  // the first step has begun
std::atomic<int> signals_came = 0;
// infinite until it is known, for one handler may interrupt another
std::atomic<double> first_came_ms = std::numeric_limits<double>::infinity();
std::atomic<bool> ctrl_c_came = false;  // one of them was Ctrl-C
static_assert(std::atomic<double>::is_always_lock_free);
// What a second signal says, written before `trains` is set; empty on all ranks but the first.
std::string last_words;  // NOLINT: a handler has no arguments
bool speaks_to_people = false;

void say_from_handler(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // there is nobody to tell
}

// The first signal asks for a checkpoint after the step. A second one ends the process at once; a
// second one that follows at once is the same request, unless one of them was Ctrl-C
// (comm/stop_signals.h).
void on_stop_signal(int came) {
  if (!trains) {
    if (speaks_to_people)
      say_from_handler("\nveil: stopped before the first step; nothing is lost\n");
    _exit(kExitStopped);
  }
  if (came == SIGINT) ctrl_c_came = true;
  if (signals_came.fetch_add(1) == 0) {
    first_came_ms = steady_ms();
    if (speaks_to_people)
      say_from_handler(
          "\nveil: stopping after this step with a checkpoint; a second Ctrl-C stops at once "
          "(another signal: after 5 s)\n");
    return;
  }
  if (!ctrl_c_came && !ends_at_once(came, steady_ms() - first_came_ms)) return;
  say_from_handler(last_words);
  std::signal(came, SIG_DFL);
  std::raise(came);
}

void hear_stop_signals(bool speaks) {
  speaks_to_people = speaks;
  sigset_t heard;
  sigemptyset(&heard);
  for (const int number : kStopSignals) {
    if (!is_heard(number)) continue;
    std::signal(number, on_stop_signal);
    sigaddset(&heard, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &heard, nullptr);  // a launcher may have held them until now
}

void stop_after_steps(const std::string& folder) {
  if (speaks_to_people)
    last_words = fmt::format(
        "\nveil: stopped at once, without a checkpoint of the last steps; `veil train --resume {}` "
        "continues from the newest one\n",
        folder);
  trains = true;
}

// What a resumed run takes from its folder, if the command line does not say otherwise.
void use_stored_run(Options& options, RunConfig& c, const RankInfo& info) {
  const auto folder = resumed_run_folder(c.training.resume, c.training.output_dir);
  if (!folder) return;
  std::vector<std::string> except = {"resume", "output-dir", "profile"};
  if (info.launcher != Launcher::none) except.push_back("ranks");
  options.set_stored(stored_settings(*folder), except,
                     {{"steps", "epochs"},
                      {"epochs", "steps"},
                      {"max-grad-norm", "clip-norm"},
                      {"clip-norm", "max-grad-norm"},
                      {"layer-norms", "clip-norm"},
                      {"clip-norm", "layer-norms"},
                      {"freeze", "train-only"},
                      {"train-only", "freeze"},
                      {"lora", "adapter"},
                      {"adapter", "lora"},
                      // which follows from it
                      {"total-batch-size", "accumulation"}});
}

int train_here(TrainCommand& command, Options& options, const RankInfo& info) {
  memory::install();
  TrainPrinter printer(command, options);
  TrainingEvents events = printer.events();
  events.stop = [] { return signals_came > 0; };
  events.before_first_step = [&] { stop_after_steps(printer.folder()); };
  const TrainResult result = train(command.config, events, info);
  if (info.rank == 0) printer.end(result);
  // launchers end all ranks when one fails: rank 0 has the last word
  const bool refuted = result.audit && !result.audit->failures.empty();
  if (info.rank != 0) return kExitDone;
  if (refuted) return kExitFailed;
  return result.finished ? kExitDone : kExitStopped;
}

}  // namespace

namespace {

// The words of a run into its configuration; false if that was all the call requested.
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

}  // namespace

std::optional<TrainWords> read_train_words(const std::vector<std::string>& words,
                                           const RankInfo& info) {
  TrainCommand command;
  Options options("train", "the options of the run");
  if (!parse_train({.arguments = words}, info, options, command)) return {};
  return TrainWords{command.config, options.json(), command.collective_timeout_s};
}

int run_train(const CommandCall& call) {
  TrainCommand command;
  Options options("train",
                  "trains a language model on your text or a diffusion transformer on your images; "
                  "privately with --epsilon or --sigma");
  RankInfo info = rank_info_from_environment();
  if (!parse_train(call, info, options, command)) return kExitDone;
  info.collective_timeout_s = command.collective_timeout_s;

  RankInfo wanted = info;
  if (info.launcher == Launcher::none)
    wanted.world = wanted.local_world = command.config.placement.ranks.value_or(1);
  if (command.dry_run) {
    command.config = prepare_training(command.config, wanted).config;
    print_settings(options, command.json);
    return kExitDone;
  }
  if (info.rank == 0) warn_of_learning_rate(options, command.config);
  std::optional<RankStart> start;
  if (info.launcher == Launcher::none && wanted.world > 1) {
    prepare_training(command.config, wanted);  // what cannot be is reported once
    start = RankStart{wanted.world, {"train"}, OnSignal::ask_ranks};
    start->words.insert(start->words.end(), call.arguments.begin(), call.arguments.end());
  }
  // before the ranks meet: the launcher may ask them from then on
  if (!start) hear_stop_signals(info.rank == 0);
  return on_ranks(info, start, [&] { return train_here(command, options, info); });
}

}  // namespace veil
