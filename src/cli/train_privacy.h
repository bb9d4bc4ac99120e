// A training run's privacy: its plan, its journal, the keys that all ranks share, and what it says about itself.
#pragma once

#include "cli/train_options.h"
#include "cli/train_task.h"
#include "comm/launch.h"
#include "privacy/journal.h"
#include "train/trainer.h"

namespace veil {

class TrainPrivacy {
 public:
  // Every rank makes one, with the same plan. UserError where the wishes do not go together or what was done before does not allow them.
  TrainPrivacy(const TrainCommand& command, const Options& options, const RankInfo& info, const std::string& folder,
               const TrainTask& task, const Model& model, Device device);

  const privacy::PrivacyPlan& plan() const { return plan_; }
  const privacy::ClipPlan& clip_plan() const { return clip_plan_; }
  int64_t steps() const { return *plan_.request().steps; }

  // Rank 0's keys and what its journal allows, on every rank. UserError where this rank has read other data than rank 0.
  void share(Communicator* lane, Device device, const TrainTask& task);
  // After share().
  privacy::PrivateStep private_step() const;
  // Rank 0, under the folder's lock; before the first step.
  void begin();
  // `state`: of the checkpoint that was loaded; empty at a run's begin.
  PrivateTraining training(const nlohmann::ordered_json& state);

  void announce() const;  // lines for a person
  nlohmann::json json() const;
  // An orderly end after this step; rank 0.
  void end(int64_t step);
  std::string budget_line(int64_t step) const;  // "" unless the budget ended the run
  std::string guarantee_line() const;
  nlohmann::json guarantee_json() const;

 private:
  bool speaks() const { return info_.rank == 0; }
  nlohmann::json deciding_settings(const Options& options, const std::string& model_folder, Device device) const;

  const PrivacyChoice& choice_;
  RankInfo info_;
  privacy::PrivacyPlan plan_;
  privacy::ClipPlan clip_plan_;
  std::unique_ptr<privacy::Journal> journal_;  // rank 0
  std::unique_ptr<privacy::SpentCurve> curve_;
  ChaChaKey noise_ = {}, sampling_ = {}, clip_count_ = {}, draws_ = {};
  int64_t last_step_ = 0;
};

// How a private run cuts its logical batch: micro-batches of --batch-size, as many as the expected batch asks for. UserError where shuffled batches cannot be shared evenly.
void settle_private_batch(TrainCommand& command, const Options& options, int world);

}  // namespace veil
