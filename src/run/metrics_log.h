// What a training run writes about its steps: metrics.jsonl and TensorBoard scalars in its folder.
// Rank 0's only.
#pragma once

#include <memory>
#include <string>

#include "profile/tensorboard.h"
#include "record/metrics_line.h"
#include "run/train_events.h"

namespace veil {

class MetricsLog {
 public:
  // A resumed run's metrics are cut back to the steps that its checkpoint holds. A private run's
  // figures are marked: those that its guarantee does not cover are called not private.
  MetricsLog(const TrainStart& start, double flops_per_step);
  StepEvent step(const StepLine& line);
  EvaluationEvent evaluation(const EvaluationLine& line);
  // Brings metrics.jsonl to the disk: a resumed run keeps the lines up to its checkpoint, and a
  // power cut must not have taken them.
  void sync() const;

 private:
  void append(const nlohmann::ordered_json& line);
  void add_private(const StepLine& line, MetricsLine& metrics);

  std::string path_;
  int64_t steps_, first_;
  bool private_;
  double begin_ms_, flops_, peak_tflops_;
  ScalarLog scalars_;
};

}  // namespace veil
