#include "cli/train_printer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/files.h"
#include "base/quantity.h"
#include "base/shell_word.h"
#include "base/table.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

std::string describe_devices(const TrainStart& start) {
  if (!start.device.is_cuda()) return quantity(start.world, "CPU rank");
  if (start.world > 1 && start.config.placement.share_gpu)
    return fmt::format("{} ranks that share a GPU", start.world);
  return quantity(start.world, "GPU");
}

std::string of_users(const TaskFacts& task) {
  return task.users > 0 ? " by " + quantity(task.users, "user") : "";
}

void print_audit(const AuditRecord& audit) {
  const AuditOneRun& run = *audit.one_run;
  fmt::print(
      "audit     {} of {} guesses about {} canaries are right: epsilon is at least {} at {:g} % "
      "confidence, the run claims {}; not private, {}\n",
      run.correct, run.guesses, run.canaries, format_lower_epsilon(audit.epsilon_low),
      100 * audit.confidence, format_epsilon(audit.claim.epsilon), audit.verdict);
}

}  // namespace

void print_notice(const std::string& line) {
  fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"),
             escape_controls(in_options(UserError(line)), /*keep_lines=*/true));
}

TrainingEvents TrainPrinter::events() {
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

void TrainPrinter::end(const TrainResult& result) {
  progress_.clear();
  if (result.privacy && command_.json)
    fmt::print("{}\n", Json{{"privacy", result.privacy->guarantee_json}}.dump());
  if (result.audit && command_.json)
    fmt::print("{}\n", Json{{"audit", to_json(*result.audit)}}.dump());
  if (result.phases) print_phases(result);
  if (command_.json) return;
  if (!result.finished)
    fmt::print("stopped; `veil train --resume {}` continues it\n", shell_word(result.folder));
  if (result.privacy && result.privacy->budget_ended)
    fmt::print("ended after step {} of {}: one more would spend more than epsilon {:g}\n",
               result.steps, result.privacy->steps, *command_.config.privacy.epsilon);
  if (result.privacy) fmt::print("\nprivate   {}\n", result.privacy->guarantee);
  if (result.audit) print_audit(*result.audit);
  fmt::print("\nrun       {}\nmetrics   {}\ncurves    tensorboard --logdir {}\n", result.folder,
             join_path(result.folder, "metrics.jsonl"),
             shell_word(join_path(result.folder, "tensorboard")));
  if (peak_tflops_ > 0)
    fmt::print(
        "mfu       3 x forward FLOPs of products and causal attention, of {} TFLOP/s dense peak "
        "per GPU\n",
        peak_tflops_);
  const std::string& exported = command_.config.training.export_folder;
  if (result.finished && !exported.empty()) fmt::print("model     {}\n", exported);
}

void TrainPrinter::begin(const TrainStart& start) {
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

void TrainPrinter::print_task(const TrainStart& start) const {
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

void TrainPrinter::print_privacy(const PrivateStart& p, int world) const {
  fmt::print("private   {}\n",
             p.mechanism.sigma() > 0
                 ? "yes: each sample's gradient is clipped, and noise is added to their sum"
                 : "no: each sample's gradient is clipped, but sigma is 0 and no noise is added");
  for (const std::string& line : p.mechanism.summary()) fmt::print("  {}\n", line);
  const int64_t steps = std::min(p.last_step, p.steps);
  if (std::isfinite(p.spends.epsilon))
    fmt::print("  spends      epsilon {} in {}, {:.4g} epochs\n", format_epsilon(p.spends.epsilon),
               quantity(steps, "step"), static_cast<double>(steps) * p.mechanism.q());
  if (p.poisson_epsilon)
    fmt::print(
        "  gap         epsilon {} for shuffled batches; Poisson samples of the same size "
        "would spend {}, which does not hold here\n",
        format_epsilon(p.spends.epsilon), format_epsilon(*p.poisson_epsilon));
  std::vector<std::string> rules;
  for (const privacy::NormRule rule : p.method.rules) {
    if (std::find(rules.begin(), rules.end(), name_of(rule)) == rules.end())
      rules.push_back(name_of(rule));
  }
  fmt::print("  computed    {}, {} (mode {}), noise by {}\n",
             rules.empty() ? "per-sample gradients" : join(rules, " and "), name_of(p.method.pass),
             name_of(command_.config.privacy.method.mode), name_of(command_.config.privacy.rng));
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

std::string TrainPrinter::rate_text(double tokens_per_second) const {
  return patches_ > 0
             ? format_count(tokens_per_second / static_cast<double>(patches_)) + " images/s"
             : format_count(tokens_per_second) + " tokens/s";
}

void TrainPrinter::step(const StepEvent& event) {
  const StepLine& line = event.line;
  progress_.clear();
  if (line.privacy && line.privacy->samples > 0 &&
      line.privacy->bad_samples >= line.privacy->samples && !told_of_noise_) {
    told_of_noise_ = true;
    print_notice(
        fmt::format("not private: no gradient of step {} was finite, so it added noise alone; if "
                    "that stays so, lower `learning_rate`",
                    line.step));
  }
  if (command_.json) fmt::print("{}\n", event.metrics.dump());
  if (command_.json) return;
  if (line.step % command_.log_every == 0 || line.step == steps_)
    fmt::print("{}\n", step_text(event));
  std::fflush(stdout);
  if (is_terminal(stderr) && line.step < steps_)
    progress_.show(
        fmt::format("{} step {} of {}", progress_bar(line.step, steps_), line.step, steps_),
        event.left_seconds);
}

std::string TrainPrinter::step_text(const StepEvent& event) {
  const StepLine& line = event.line;
  const std::string left = format_duration(event.left_seconds) + " left";
  // Each with its rank: what is least needed goes first if the line is too long.
  std::vector<LinePart> parts = {
      {fmt::format("step {:>{}}/{}", line.step, std::to_string(steps_).size(), steps_)}};
  if (line.privacy) {
    const PrivateLine& p = *line.privacy;
    parts.push_back({"epsilon " + format_epsilon(p.epsilon)});
    parts.push_back({fmt::format("C {:.3g}", p.clip_norm), 4});
    parts.push_back({fmt::format("lr {:.2e}", line.learning_rate), 2});
    parts.push_back({fmt::format("| not private: loss {}",
                                 p.samples == 0          ? "-"
                                 : std::isnan(line.loss) ? "nan"
                                                         : fmt::format("{:.4f}", line.loss))});
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
  return fitter_.fitted(parts, static_cast<size_t>(terminal_width(stdout)));
}

void TrainPrinter::evaluation(const EvaluationEvent& event) {
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
                        : " over " + quantity(line.samples, patches_ > 0 ? "image" : "sample");
  fmt::print("held out{}: loss {:.4f}{}{}\n", private_ ? " (not private)" : "", line.loss, score,
             line.of_average ? ", of the weights' average" : "");
}

void TrainPrinter::print_phases(const TrainResult& result) const {
  const PhaseTimes& times = *result.phases;
  Table table({"phase", "ms per step", "share"});
  const auto add = [&](const std::string& name, double ms) {
    table.row({name, fmt::format("{:.3f}", ms), fmt::format("{:.1f} %", 100 * ms / times.step_ms)});
  };
  for (const auto& [phase, ms] : times.compute_ms) add(phase, ms);
  for (const auto& [lane, time] : times.lanes) add("waiting for " + lane, time.exposed_ms);
  add("gap", times.gap_ms);
  fmt::print(command_.json ? stderr : stdout, "\nphases of {}{}\n{}\n",
             quantity(result.timed_steps, "step"), private_ ? " (not private)" : "", table.text());
}

}  // namespace veil
