#include "cli/train_log.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

std::string kept_lines(const std::string& path, int64_t done) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_object() && entry.value("step", int64_t{0}) <= done) kept += line + "\n";
  }
  return kept;
}

}  // namespace

TrainLog::TrainLog(const std::string& folder, bool speaks, bool json, int64_t steps, int64_t done)
    : path_(join_path(folder, "metrics.jsonl")),
      speaks_(speaks),
      json_(json),
      steps_(steps),
      first_(done),
      begin_ms_(steady_ms()) {
  if (!speaks_) return;
  // Losses and norms tell of the data, so only the owner reads them.
  write_file_atomically(path_, done > 0 ? kept_lines(path_, done) : "", /*owner_only=*/true);
  scalars_ = std::make_unique<ScalarLog>(join_path(folder, "tensorboard"), /*owner_only=*/true);
}

void TrainLog::set_throughput(double flops_a_rank, double peak_tflops_a_rank) {
  flops_ = flops_a_rank;
  peak_ = peak_tflops_a_rank;
}

void TrainLog::append(const Json& line) {
  std::ofstream file(path_, std::ios::app);
  file << line.dump() << '\n';
  file.flush();
  if (!file) user_error("{}: cannot be written", path_);
  if (json_) fmt::print("{}\n", line.dump());
}

std::string TrainLog::rate_text(double tokens_per_second) const {
  return patches_ > 0 ? format_count(tokens_per_second / static_cast<double>(patches_)) + " images/s"
                      : format_count(tokens_per_second) + " tokens/s";
}

void TrainLog::private_step(const StepLine& line, double left_s) {
  const PrivateLine& p = *line.privacy;
  const Json loss = std::isfinite(line.loss) ? Json(line.loss) : Json();
  append({{"step", line.step},
          {"epsilon", std::isfinite(p.epsilon) ? Json(p.epsilon) : Json("inf")},
          {"clip_norm", p.clip_norm},
          {"learning_rate", line.learning_rate},
          {"loss", loss},
          {"samples", p.samples},
          {"bad_samples", p.bad_samples},
          {"below_clip_norm", p.below_clip_norm},
          {"seconds", line.seconds},
          {"tokens_per_second", line.tokens_per_second},
          {"waited_for_data_seconds", line.waited_for_data_seconds},
          {"peak_memory_bytes", line.peak_bytes},
          {"left_seconds", left_s},
          {"not_private",
           {"loss", "samples", "bad_samples", "below_clip_norm", "seconds", "tokens_per_second",
            "waited_for_data_seconds", "peak_memory_bytes", "left_seconds"}}});
  scalars_->add("private/epsilon", p.epsilon, line.step);
  scalars_->add("private/clip_norm", p.clip_norm, line.step);
  scalars_->add("train/learning_rate", line.learning_rate, line.step);
  if (std::isfinite(line.loss)) scalars_->add("not_private/loss", line.loss, line.step);
  scalars_->add("not_private/samples", static_cast<double>(p.samples), line.step);
  scalars_->add("not_private/bad_samples", static_cast<double>(p.bad_samples), line.step);
  scalars_->add("not_private/below_clip_norm", p.below_clip_norm, line.step);
  scalars_->add("not_private/tokens_per_second", line.tokens_per_second, line.step);
  if (json_ || (line.step % print_every_ != 0 && line.step != steps_)) return;
  fmt::print("step {:>{}}/{}  epsilon {:.4f}  C {:.3g}  lr {:.2e}  {}  {} left | not private: loss {}  {}{}  {}\n",
             line.step, std::to_string(steps_).size(), steps_, p.epsilon, p.clip_norm, line.learning_rate,
             format_bytes(line.peak_bytes), format_duration(left_s),
             p.samples > 0 ? fmt::format("{:.4f}", line.loss) : "-",
             quantity(p.samples, patches_ > 0 ? "image" : "sample"),
             p.bad_samples > 0 ? fmt::format(" ({} bad)", p.bad_samples) : "", rate_text(line.tokens_per_second));
  std::fflush(stdout);
}

void TrainLog::step(const StepLine& line) {
  if (!speaks_) return;
  const double mfu = peak_ > 0 ? flops_ / line.seconds / 1e12 / peak_ : 0;
  const double elapsed_s = (steady_ms() - begin_ms_) / 1e3;
  const double left_s = elapsed_s / static_cast<double>(line.step - first_) * static_cast<double>(steps_ - line.step);
  if (line.privacy) return private_step(line, left_s);
  Json json = {{"step", line.step},
               {"epoch", line.epoch},
               {"loss", line.loss},
               {"grad_norm", line.grad_norm},
               {"learning_rate", line.learning_rate},
               {"seconds", line.seconds},
               {"tokens_per_second", line.tokens_per_second},
               {"waited_for_data_seconds", line.waited_for_data_seconds},
               {"peak_memory_bytes", line.peak_bytes},
               {"left_seconds", left_s}};
  if (mfu > 0) json["mfu"] = mfu;
  append(json);
  scalars_->add("train/loss", line.loss, line.step);
  scalars_->add("train/grad_norm", line.grad_norm, line.step);
  scalars_->add("train/learning_rate", line.learning_rate, line.step);
  scalars_->add("train/tokens_per_second", line.tokens_per_second, line.step);
  if (json_ || (line.step % print_every_ != 0 && line.step != steps_)) return;
  const std::string mfu_text = mfu > 0 ? fmt::format("  mfu {:.1f}%", 100 * mfu) : "";
  fmt::print("step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {}{}  {}  {} left\n", line.step,
             std::to_string(steps_).size(), steps_, line.loss, line.grad_norm, line.learning_rate,
             rate_text(line.tokens_per_second), mfu_text, format_bytes(line.peak_bytes), format_duration(left_s));
  std::fflush(stdout);
}

void TrainLog::evaluation(const EvaluationLine& line) {
  if (!speaks_) return;
  Json json = {{"step", line.step}, {"held_out_loss", line.loss}, {"held_out_samples", line.samples}};
  if (line.accuracy) {
    json["held_out_accuracy"] = *line.accuracy;
  } else if (line.tokens > 0) {
    json["held_out_perplexity"] = line.perplexity();
    json["held_out_tokens"] = line.tokens;
  }
  if (private_) {
    Json all = Json::array();
    for (const auto& [key, value] : json.items()) {
      if (key != "step") all.push_back(key);
    }
    json["not_private"] = all;
  }
  if (line.of_average) json["held_out_weights"] = "average";
  append(json);
  const std::string group = private_ ? "not_private/held_out_" : "held_out/";
  scalars_->add(group + "loss", line.loss, line.step);
  if (line.accuracy) scalars_->add(group + "accuracy", *line.accuracy, line.step);
  if (json_) return;
  const std::string score =
      line.accuracy ? fmt::format(", accuracy {:.1f}% of {}", 100 * *line.accuracy, quantity(line.samples, "sample"))
      : line.tokens > 0 ? fmt::format(", perplexity {:.2f} over {}", line.perplexity(), quantity(line.tokens, "token"))
                        : " over " + quantity(line.samples, "image");
  fmt::print("held out{}: loss {:.4f}{}{}\n", private_ ? " (not private)" : "", line.loss, score,
             line.of_average ? ", of the weights' average" : "");
}

void TrainLog::checkpoint(int64_t step) {
  if (speaks_ && !json_) fmt::print("checkpoint after step {}\n", step);
}

void TrainLog::guarantee(const std::string& budget, const std::string& line, const nlohmann::json& json) {
  if (!speaks_) return;
  budget_ = budget;
  guarantee_ = line;
  if (json_) fmt::print("{}\n", Json{{"privacy", json}}.dump());
}

void TrainLog::end(bool finished, const std::string& folder, const std::string& exported) {
  if (json_) return;
  if (!finished) fmt::print("stopped; `--resume {}` goes on\n", folder);
  if (!budget_.empty()) fmt::print("{}\n", budget_);
  if (!guarantee_.empty()) fmt::print("\nprivate   {}\n", guarantee_);
  fmt::print("\nrun       {}\nmetrics   {}\ncurves    tensorboard --logdir {}\n", folder, path_,
             join_path(folder, "tensorboard"));
  if (peak_ > 0)
    fmt::print("mfu       3 x forward FLOPs of products and causal attention, of {} TFLOP/s dense peak a GPU\n", peak_);
  if (finished && !exported.empty()) fmt::print("model     {}\n", exported);
}

}  // namespace veil
