// The one value that says how a run is private: sampler, clipping, noise and accounting, which
// would be wrong apart.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "privacy/accountant.h"
#include "privacy/batch_maximum.h"
#include "privacy/clip.h"

namespace veil::privacy {

// poisson: each sample with probability q, independently (sampler.h). shuffled: batches of a fixed
// size, each sample at most once per epoch (data::ShuffledOrder).
enum class SamplerKind { poisson, shuffled };
// What neighbouring data sets are. add_remove: one has a sample that the other lacks. zero_out: a
// sample's gradient is replaced by nothing, sizes stay.
enum class Relation { add_remove, zero_out };
// Whose presence is hidden. document: a sequence holds one document's text only, and a document has
// at most one sequence. user: users are drawn, and each contributes one of their samples to a step.
enum class PrivacyUnit { sample, document, user };
const NameTable<SamplerKind>& names(SamplerKind);
const NameTable<Relation>& names(Relation);
const NameTable<PrivacyUnit>& names(PrivacyUnit);
// What a draw consists of: users, or samples.
const char* drawn_word(PrivacyUnit unit);

// Neighbours of a sampler's steps.
Relation relation_of(SamplerKind sampler);

// Steps of an earlier training of the same parameters that protected the same unit.
struct BasePhase {
  SamplerKind sampler = SamplerKind::poisson;
  Phase phase;
};
// Those and a training's own, by sampler: within one they compose, over several they add up.
std::vector<std::vector<Phase>> by_sampler(const std::vector<BasePhase>& phases);

// What a run that continues has done: its last step, and what its ledger counts.
struct DoneSteps {
  int64_t steps = 0;
  std::vector<BasePhase> phases;
};

// What is requested; make_mechanism checks it and fills in the rest.
struct MechanismRequest {
  SamplerKind sampler = SamplerKind::poisson;
  std::optional<Relation> relation = {};  // absent: the sampler's own
  PrivacyUnit unit = PrivacyUnit::sample;
  bool one_sequence_a_document = false;  // promised by the data; the unit document asks for it
  bool users_are_drawn = false;          // promised by the data; the unit user asks for it
  std::string unit_text = {};            // what a sample is, in words; "": the unit's name

  int64_t data_size = 0;        // units of a draw
  bool size_from_data = false;  // counted instead of given: the mechanism declares it public
  int64_t canaries = 0;         // of them, put there by an audit; whether in or out, they count
  // one of them, or both if expected_batch = q * data_size
  std::optional<double> q = {}, expected_batch = {};
  // poisson: draws are cut to it; its cost is part of `delta`
  std::optional<BatchMaximum> maximum = {};

  ClipFunction clip = ClipFunction::abadi;
  double clip_norm = 0;  // C; adaptive: the first one; per_layer: absent, or sqrt(sum C_l^2)
  std::vector<double> layer_norms = {};  // C_l, per_layer only
  AdaptiveClip adaptive = {};
  double slack = 0;  // what rounding can add to a clipped sample's norm, relative to C

  std::optional<double> sigma = {};  // noise multiplier; 0 is a run without privacy
  // what `steps` steps may spend. Without sigma, sigma is calibrated from it
  std::optional<double> epsilon = {};
  std::optional<int64_t> steps = {};
  double delta = 0;
  AccountantKind accountant = AccountantKind::pld;
  // Counted in addition wherever epsilon is meant: by the budget and by what was spent.
  std::vector<BasePhase> base = {};
  // Of a run that continues: sigma is for the steps after these, which count as they were.
  DoneSteps done = {};
};

class Mechanism {
 public:
  // as completed: relation, q, expected_batch, clip_norm and sigma are set
  const MechanismRequest& request() const { return request_; }
  // under shuffled only a ratio: no amplification is claimed
  double q() const { return *request_.q; }
  // E: what the noisy sum is divided by, whatever was drawn
  double expected_batch() const { return *request_.expected_batch; }
  double sigma() const { return *request_.sigma; }
  Relation relation() const { return *request_.relation; }
  // draws are cut to so many units; 0: they are not
  int64_t batch_maximum() const { return request_.maximum ? request_.maximum->most : 0; }
  // the chance of that, per step, for either of two neighbours
  double overflow() const { return overflow_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }  // shuffled; 0 under poisson

  // How far one sample can move the clipped sums of a logical batch: C (1 + slack), or sqrt(sum
  // C_l^2) (1 + slack). Under adaptive clipping C is that of the step.
  double sensitivity() const { return sensitivity(request_.clip_norm); }
  double sensitivity(double clip_norm) const { return clip_norm * (1 + request_.slack); }
  // Of the noise on each element of the summed gradient, once per logical batch. Under adaptive
  // clipping the multiplier is larger than sigma, for the noisy count takes its part of the budget.
  double noise_deviation() const { return noise_deviation(request_.clip_norm); }
  double noise_deviation(double clip_norm) const {
    return gradient_sigma_ * sensitivity(clip_norm);
  }
  double gradient_sigma() const { return gradient_sigma_; }

  // What the accountant is told of the first `steps` steps, or of those after `first`. poisson: so
  // many at rate q. shuffled: a plain Gaussian for each epoch that any of them fell in.
  Phase event(int64_t steps) const { return event(0, steps); }
  Phase event(int64_t first, int64_t last) const;
  // At the mechanism's delta, what was before included.
  Spent epsilon_after(int64_t steps) const;
  // The most steps that spend no more than `epsilon`; kManySteps if more than that do.
  int64_t steps_within(double epsilon) const;
  static constexpr int64_t kManySteps = int64_t{1} << 32;

  std::vector<std::string> warnings() const;  // a sentence each; what is weaker than it may look
  std::vector<std::string> summary() const;   // lines for a person
  nlohmann::json json() const;                // for records; holds no secret

 private:
  friend Mechanism make_mechanism(const MechanismRequest& request);
  Mechanism() = default;
  std::vector<BasePhase> phases_after(int64_t steps) const;
  Spent base_spent() const;
  MechanismRequest request_;
  int64_t steps_per_epoch_ = 0;
  double gradient_sigma_ = 0, overflow_ = 0;
};

// Steps that `epochs` take at the rate q, rounded up. UserError if that is no number of steps.
int64_t steps_of_epochs(double epochs, double q);

// The only way to a mechanism. UserError, in one line, if parts do not go together.
Mechanism make_mechanism(const MechanismRequest& request);

}  // namespace veil::privacy
