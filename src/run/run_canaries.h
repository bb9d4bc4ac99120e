// Canaries of a training run: samples of random content, each put into the run or left out by a
// secret coin. An attacker who guesses coins from the released parameters better than epsilon allows has
// refuted it (privacy/one_run.h).
#pragma once

#include "engine/executor.h"
#include "models/shape.h"
#include "record/audit_record.h"
#include "train/canary_feed.h"

namespace veil {

inline constexpr const char* kOneRunRecord = "audit_one_run.json";  // in the run's folder

class RunCanaries {
 public:
  // Content follows from `seed` and is public; `coins` is derived for KeyDomain::canary_coins. A
  // canary that is left out keeps its number and is drawn like the others, and then counts for
  // nothing: the number of samples and the expected batch say nothing of the coins.
  RunCanaries(const Feed& samples, const Model& model, int64_t count, uint64_t seed,
              const ChaChaKey& coins);

  const std::vector<bool>& coins() const { return present_; }  // secret
  // The samples with the canaries behind them.
  std::shared_ptr<const Feed> within(std::shared_ptr<const Feed> samples) const;
  // Of all canaries with the parameters as they are. Every rank must call it.
  std::vector<double> losses(Executor& executor) const;
  // Guesses by how far each loss fell between two released states, the most and the least fallen.
  // To first order that is the sum over the steps of the noised update's product with the canary's
  // gradient; nothing but released parameters enters.
  AuditRecord judged(const std::vector<double>& before, const std::vector<double>& after,
                     double epsilon, double delta) const;

 private:
  std::vector<Batch> rows_;
  std::vector<bool> present_;
};

}  // namespace veil
