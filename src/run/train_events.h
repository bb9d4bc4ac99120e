// What a training run tells its caller while it runs, and at its end.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "record/audit_record.h"
#include "run/phases.h"
#include "run/private_run.h"
#include "run/train_task.h"
#include "train/trainer.h"

namespace veil {

// Everything that is known before the first step.
struct TrainStart {
  RunConfig config;  // settled
  std::string folder;
  int world = 1;
  Device device = cpu_device();
  TaskFacts task;
  int64_t parameters = 0;
  std::string weights;       // where they come from, as of weights_text
  int64_t global_batch = 0;  // samples of a logical batch; of a private run those it has room for
  int64_t steps = 0;         // in all
  int64_t done = 0;          // before, by the run that is resumed
  std::string graph;         // "on", or why not
  double peak_tflops = 0;    // of the device; 0: not known, no MFU
  std::optional<PrivateStart> privacy;
};

struct StepEvent {
  StepLine line;
  double left_seconds = 0;
  double mfu = 0;                  // 0: not known
  nlohmann::ordered_json metrics;  // as metrics.jsonl has it
};

struct EvaluationEvent {
  EvaluationLine line;
  nlohmann::ordered_json metrics;
};

// On rank 0 unless it is said otherwise. Any may be empty.
struct TrainingEvents {
  OnNotice on_notice;  // a line that a person should see: data left out, a head that starts anew
  std::function<void(const TrainStart&)> on_start;
  std::function<void(const StepEvent&)> on_step;
  std::function<void(const EvaluationEvent&)> on_evaluation;
  std::function<void(int64_t step)> on_checkpoint;
  std::function<void()> before_first_step;  // on every rank
  // Asked on every rank after each step: a checkpoint is written and the run ends.
  std::function<bool()> stop;
};

struct TrainResult {
  bool finished = false;  // not stopped before its last step
  int64_t steps = 0;
  std::string folder;
  std::optional<PrivateResult> privacy;  // rank 0's
  // Of a private run with canaries that was not resumed; rank 0's. Not private.
  std::optional<AuditRecord> audit;
  // Of this rank if measure.profile has phases: means without the first step, which warms up.
  // Not private.
  std::optional<PhaseTimes> phases;
  int64_t timed_steps = 0;
};

}  // namespace veil
