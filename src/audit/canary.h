// `veil audit canary`: a run with a worst-case canary told from one without, by someone who sees
// every released sum.
#pragma once

#include "audit/audited_run.h"

namespace veil::audit {

// Every rank must call it; the record is rank 0's. Its command, config and build are the caller's.
AuditRecord audit_canary(const AuditOptions& options, const AuditPlace& place);

// The run that is claimed, as the accountant sees it.
struct ClaimedRun {
  privacy::Phase phase;
  double delta = 0;
};
// How likely the canary is in a step's sum, rather than not: ln of the ratio of likelihoods, if the
// sum along the canary's direction is `seen` and a canary that is there moves it by `distance`.
// `deviation` is the noise's, in the same unit.
double log_likelihood_ratio(double seen, double distance, double deviation, double q);

// Scores with and without, one of each per pair, above 0 if the canary is guessed to be there.
// The bound, by Gaussian DP for one step at q = 1 and by the accountant's trade-off curve
// otherwise; fills the record's test, roc, claimed_roc and epsilon_low.
void judge_scores(const std::vector<double>& with, const std::vector<double>& without,
                  const ClaimedRun& claimed, double confidence, AuditRecord& record);

// The smallest false negative rate of any test at this false positive rate, from below: the
// accountant's own curve of delta over epsilon turned into a trade-off (Dong, Roth and Su 2022,
// Proposition 2.5).
class TradeOff {
 public:
  explicit TradeOff(const privacy::Phase& phase);
  double false_negatives(double false_positives) const;

 private:
  std::vector<std::pair<double, double>> curve_;  // epsilon, delta
  double mu_ = 0;                                 // of a plain Gaussian; 0: none
};

}  // namespace veil::audit
