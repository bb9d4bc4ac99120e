#include "run/metrics_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "record/fields.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

std::string kept_lines(const std::string& path, int64_t done) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    try {
      if (metrics_line_from_json(parse_object(line)).step <= done) kept += line + "\n";
    } catch (const DamagedRecordError&) {  // half a line, where the run was killed
    }
  }
  return kept;
}

}  // namespace

// Losses and norms tell of the data, so only the owner reads them.
MetricsLog::MetricsLog(const TrainStart& start, double flops_per_step)
    : path_(join_path(start.folder, "metrics.jsonl")),
      steps_(start.steps),
      first_(start.done),
      private_(start.privacy.has_value()),
      begin_ms_(steady_ms()),
      flops_(flops_per_step),
      peak_tflops_(start.peak_tflops),
      scalars_(join_path(start.folder, "tensorboard"), /*owner_only=*/true) {
  write_file_atomically(path_, first_ > 0 ? kept_lines(path_, first_) : "", /*owner_only=*/true);
}

void MetricsLog::append(const Json& line) {
  std::ofstream file(path_, std::ios::app);
  file << line.dump() << '\n';
  file.flush();
  if (!file) user_error("{}: cannot be written", path_);
}

void MetricsLog::sync() const {
  const int file = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  const bool written = file >= 0 && fsync(file) == 0;
  const std::string reason = std::strerror(errno);
  if (file >= 0) close(file);
  if (!written) user_error("{}: cannot be written: {}", path_, reason);
}

void MetricsLog::add_private(const StepLine& line, MetricsLine& metrics) {
  const PrivateLine& p = *line.privacy;
  metrics.epsilon = p.epsilon;
  metrics.clip_norm = p.clip_norm;
  metrics.samples = p.samples;
  metrics.bad_samples = p.bad_samples;
  metrics.below_clip_norm = p.below_clip_norm;
  metrics.not_private = {"loss",
                         "samples",
                         "bad_samples",
                         "below_clip_norm",
                         "seconds",
                         "tokens_per_second",
                         "waited_for_data_seconds",
                         "peak_memory_bytes",
                         "left_seconds"};
  scalars_.add("private/epsilon", p.epsilon, line.step);
  scalars_.add("private/clip_norm", p.clip_norm, line.step);
  scalars_.add("train/learning_rate", line.learning_rate, line.step);
  if (std::isfinite(line.loss)) scalars_.add("not_private/loss", line.loss, line.step);
  scalars_.add("not_private/samples", static_cast<double>(p.samples), line.step);
  scalars_.add("not_private/bad_samples", static_cast<double>(p.bad_samples), line.step);
  scalars_.add("not_private/below_clip_norm", p.below_clip_norm, line.step);
  scalars_.add("not_private/tokens_per_second", line.tokens_per_second, line.step);
}

StepEvent MetricsLog::step(const StepLine& line) {
  StepEvent event;
  event.line = line;
  event.mfu = peak_tflops_ > 0 ? flops_ / line.seconds / 1e12 / peak_tflops_ : 0;
  const double elapsed_s = (steady_ms() - begin_ms_) / 1e3;
  event.left_seconds =
      elapsed_s / static_cast<double>(line.step - first_) * static_cast<double>(steps_ - line.step);
  MetricsLine metrics{.step = line.step,
                      .loss = line.loss,
                      .learning_rate = line.learning_rate,
                      .seconds = line.seconds,
                      .tokens_per_second = line.tokens_per_second,
                      .waited_for_data_seconds = line.waited_for_data_seconds,
                      .left_seconds = event.left_seconds,
                      .peak_memory_bytes = line.peak_bytes};
  if (line.privacy) {
    add_private(line, metrics);
  } else {
    metrics.epoch = line.epoch;
    metrics.grad_norm = line.grad_norm;
    if (event.mfu > 0) metrics.mfu = event.mfu;
    scalars_.add("train/loss", line.loss, line.step);
    scalars_.add("train/grad_norm", line.grad_norm, line.step);
    scalars_.add("train/learning_rate", line.learning_rate, line.step);
    scalars_.add("train/tokens_per_second", line.tokens_per_second, line.step);
  }
  event.metrics = to_json(metrics);
  append(event.metrics);
  return event;
}

EvaluationEvent MetricsLog::evaluation(const EvaluationLine& line) {
  EvaluationEvent event;
  event.line = line;
  MetricsLine metrics{.step = line.step};
  metrics.held_out_loss = line.loss;
  metrics.held_out_samples = line.samples;
  metrics.not_private = {"held_out_loss", "held_out_samples"};
  if (line.accuracy) {
    metrics.held_out_accuracy = *line.accuracy;
    metrics.not_private.push_back("held_out_accuracy");
  } else if (line.tokens > 0) {
    metrics.held_out_perplexity = line.perplexity();
    metrics.held_out_tokens = line.tokens;
    metrics.not_private.insert(metrics.not_private.end(),
                               {"held_out_perplexity", "held_out_tokens"});
  }
  if (!private_) metrics.not_private.clear();
  if (line.of_average) metrics.held_out_weights = "average";
  event.metrics = to_json(metrics);
  append(event.metrics);
  const std::string group = private_ ? "not_private/held_out_" : "held_out/";
  scalars_.add(group + "loss", line.loss, line.step);
  if (line.accuracy) scalars_.add(group + "accuracy", *line.accuracy, line.step);
  return event;
}

}  // namespace veil
