// What a training run says: a line a step on stdout, metrics.jsonl and TensorBoard scalars in its folder. Rank 0's only.
#pragma once

#include <memory>
#include <string>

#include "profile/tensorboard.h"
#include "train/trainer.h"

namespace veil {

class TrainLog {
 public:
  // A resumed run's metrics are cut back to the steps that its checkpoint holds.
  TrainLog(const std::string& folder, bool speaks, bool json, int64_t steps, int64_t done);
  // FLOPs of a step and the peak in TFLOP/s (0: not known, no MFU), both a rank.
  void set_throughput(double flops_a_rank, double peak_tflops_a_rank);
  // A private run's figures are marked: those that its guarantee does not cover are called not private wherever they stand.
  void mark_private() { private_ = true; }
  // Lines on stdout count images of so many patches a second instead of tokens, and call samples images.
  void count_images(int64_t patches) { patches_ = patches; }
  // Steps between two lines on stdout; the metrics have them all.
  void print_every(int64_t steps) { print_every_ = steps; }
  void step(const StepLine& line);
  void evaluation(const EvaluationLine& line);
  void checkpoint(int64_t step);
  // What a private run ends with; `budget` is "" unless the budget ended it.
  void guarantee(const std::string& budget, const std::string& line, const nlohmann::json& json);
  void end(bool finished, const std::string& folder, const std::string& exported);

 private:
  void append(const nlohmann::ordered_json& line);
  std::string path_;
  bool speaks_, json_;
  int64_t steps_, first_, print_every_ = 1;
  double begin_ms_, flops_ = 0, peak_ = 0;
  int64_t patches_ = 0;  // of an image; 0: text
  std::string rate_text(double tokens_per_second) const;
  void private_step(const StepLine& line, double left_s);
  bool private_ = false;
  std::string budget_, guarantee_;
  std::unique_ptr<ScalarLog> scalars_;
};

}  // namespace veil
