// A training run set up as train() sets it up, and held before its first step: the same task,
// model, executor, keys and trainer options. For audits, which look at the mechanism itself.
// Nothing is written, no step is counted, and the secret is a fresh one that nobody keeps.
#pragma once

#include <memory>

#include "comm/launch.h"
#include "run/train_task.h"
#include "train/trainer.h"

namespace veil {

class OpenedRun {
 public:
  // `config` must be a private run's. UserError as train()'s.
  OpenedRun(const RunConfig& config, const OnNotice& notice, const RankInfo& info);
  ~OpenedRun();

  const RunConfig& config() const;  // settled
  const RankInfo& info() const;
  const Model& model() const;
  const TrainTask& task() const;
  const std::shared_ptr<const Feed>& samples() const;  // canaries of the run's own included
  Executor& executor();
  const OptimizerOptions& optimizer() const;
  // As the trainer would get them, without a folder and without a journal.
  const TrainOptions& options() const;
  const privacy::Mechanism& mechanism() const { return options().privacy->mechanism; }

  // Runs the trainer itself for the steps that follow `executor().steps()`, up to `last_step`, on
  // `samples` instead of the run's own; none if last_step was done already, but the samples' order
  // is made and opened. `users` own the samples where the run's unit is a user.
  void train(std::shared_ptr<const Feed> samples, std::shared_ptr<const data::Users> users,
             int64_t last_step, const std::function<double(double)>& learning_rate);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace veil
