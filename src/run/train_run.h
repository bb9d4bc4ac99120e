// A training run on one rank, from its preparation to its result: train() runs it, and OpenedRun
// holds it before its first step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "engine/executor.h"
#include "profile/kineto.h"
#include "run/metrics_log.h"
#include "run/prepared_run.h"
#include "run/private_run.h"
#include "run/run_canaries.h"
#include "run/run_folder.h"
#include "run/train_events.h"
#include "run/train_task.h"
#include "train/trainer.h"
#include "train/weight_average.h"

namespace veil {

// Room for a rank's samples of a logical batch.
Batch empty_batch(const Model& model, int64_t rows, DType compute, Device device);

class TrainRun {
 public:
  // `prepared` and `events` outlive it.
  TrainRun(const PreparedRun& prepared, const TrainingEvents& events, const RankInfo& info)
      : config_(prepared.config),
        events_(events),
        info_(info),
        folder_(prepared.folder),
        device_(prepared.device) {}

  TrainResult run();
  // The same run, for OpenedRun: its trainer's options, with nothing that writes.
  TrainOptions open(const OnNotice& notice);

  const Model& model() const { return *model_; }
  const TrainTask& task() const { return *task_; }
  const std::shared_ptr<const Feed>& samples() const { return samples_; }
  Executor& executor() { return *executor_; }

 private:
  bool speaks() const { return info_.rank == 0; }
  // Task, model, executor and trainer options: all that a run has before it writes anything.
  TrainOptions set_up(const OnNotice& notice);
  // What a killed process left of files that were to be replaced.
  void remove_stale_run_files() const;
  void make_executor(const Model& model, const OnNotice& notice);
  // Of the model that the run began with: its checkpoint says, or the model's folder.
  std::optional<privacy::Statement> base_statement() const;
  data::Position resume(TrainOptions& options);
  // Checkpoints do not hold what is frozen: it comes from where the run began.
  void check_frozen(const nlohmann::ordered_json& state, const std::string& checkpoint) const;
  TrainOptions train_options() const;
  TrainStart start_facts(int64_t steps) const;
  TrainEvents trainer_events();
  // Kineto around the step that is profiled and the one behind it.
  void trace(int64_t step);

  const RunConfig& config_;
  const TrainingEvents& events_;
  RankInfo info_;
  std::string folder_;
  Device device_;
  std::unique_ptr<TrainTask> task_;
  std::unique_ptr<RunCanaries> canaries_;  // of a private run that has some
  std::shared_ptr<const Feed> samples_;
  RunOrigin origin_;
  std::string frozen_digest_;            // "" if all is trained
  std::unique_ptr<PrivateRun> privacy_;  // of a private run
  std::unique_ptr<Model> model_;         // outlives the executor
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<WeightAverage> average_;
  std::string weights_;  // where they come from
  int64_t global_batch_ = 0;
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<MetricsLog> log_;  // rank 0's
  KernelProfile kernels_;
  std::vector<StepTime> step_times_;
};

}  // namespace veil
