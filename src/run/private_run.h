// The privacy of a training run: its mechanism (run/private_mechanism.h), the journal that is written
// before each step, the keys that all ranks share, and whether a resumed run may keep its nonce.
#pragma once

#include "comm/launch.h"
#include "privacy/journal.h"
#include "privacy/statement.h"
#include "run/config.h"
#include "run/rank_keys.h"
#include "run/train_task.h"
#include "train/trainer.h"

namespace veil {

// Where a run's parameters come from.
struct RunOrigin {
  InitialWeights initial;  // unless it continues from a checkpoint
  // Of the model that the run began with; nothing if it has none.
  std::optional<privacy::Statement> base;
};

// What a private run is, before its first step.
struct PrivateStart {
  PrivateStart(privacy::Mechanism of, privacy::ClipMethod by)
      : mechanism(std::move(of)), method(std::move(by)) {}
  privacy::Mechanism mechanism;
  privacy::ClipMethod method;  // how clipping is computed
  int64_t steps = 0;           // that are wanted, and the last that the budget allows
  int64_t last_step = 0;
  privacy::Spent spends;  // after the last of them, with all that was before and was lost
  // Of shuffled batches: what Poisson samples of the same size would spend.
  std::optional<double> poisson_epsilon;
  bool resumes = false;    // there is something before it
  bool replays = false;    // under the nonce that was there
  std::string why_fresh;   // if it resumes and does not replay: a phrase
  int64_t lost_steps = 0;  // begun before, and counted in addition to those that take their place
  bool keys_sent = false;  // to other ranks, unencrypted
  nlohmann::json json;     // the same for a record
};

// What it ends with.
struct PrivateResult {
  double epsilon = 0;         // spent
  bool budget_ended = false;  // one more step would have spent more than the budget
  int64_t steps = 0;          // that were wanted
  std::string guarantee;      // a sentence
  nlohmann::json guarantee_json;
};

class PrivateRun {
 public:
  // Every rank makes one, with the same mechanism and method; `config` is settled (run/train.h) and
  // outlives it, as `origin` does. UserError if the configuration asks for what cannot be, or
  // what was done before in `folder` does not allow it. Nothing is written.
  PrivateRun(const RunConfig& config, const RankInfo& info, const std::string& folder,
             const TrainTask& task, const Model& model, Device device, const RunOrigin& origin,
             Communicator* lane);

  int64_t steps() const { return *mechanism_.request().steps; }

  // Rank 0's keys and what its journal allows, on every rank. UserError if this rank has read
  // other data or parameters than rank 0, or another secret.
  void share(Communicator* lane, Device device, const TrainTask& task);
  PrivateParts parts() const;  // after share()
  const ChaChaKey& canary_coins() const { return keys_.canary_coins; }
  // Rank 0, under the folder's lock; before the first step.
  void begin();
  // `state`: of the checkpoint that was loaded; empty at a run's begin.
  PrivateTraining training(const nlohmann::ordered_json& state);
  // Lines for a person: noise that drowns the signal (noise_to_signal) or is not cryptographic, an
  // earlier training that no figure can take in.
  std::vector<std::string> warnings(const Model& model) const;
  PrivateStart start() const;  // rank 0
  // An orderly end after this step; rank 0.
  void end(int64_t step);
  PrivateResult result(int64_t step) const;  // after end()

 private:
  bool keeps_journal() const { return info_.rank == 0; }
  // All that decides, but for the clip plan.
  nlohmann::json deciding_settings(Device device, const std::string& all_ranks) const;
  // Whether the device computes alike each time: only then is anything hashed.
  bool computes_alike(Device device) const;

  const RunConfig& config_;
  RankInfo info_;
  const RunOrigin& origin_;
  privacy::Together together_;  // with the base; one figure if there is none
  privacy::Mechanism mechanism_;
  privacy::ClipMethod method_;
  std::unique_ptr<privacy::Journal> journal_;  // rank 0
  std::unique_ptr<privacy::SpentCurve> curve_;
  std::shared_ptr<const data::Users> users_;
  RunKeys keys_;
  bool keys_sent_ = false;
  bool replayable_ = false;
  std::string model_digest_;
  std::string weights_digest_;  // "" if the run continues or cannot be replayed
  int64_t last_step_ = 0;
};

}  // namespace veil
