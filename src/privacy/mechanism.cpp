#include "privacy/mechanism.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quantity.h"
#include "base/units.h"
#include "privacy/accountant.h"

namespace veil::privacy {
namespace {

// 5000 / 60000 * 60000 is 5000 only to the last digits.
constexpr double kSame = 1e-9;

bool same(double a, double b) {
  return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b));
}

bool positive(double value) {
  return value > 0 && std::isfinite(value);
}

void complete_sampling(MechanismRequest& r) {
  if (r.data_size < 1) field_error("data_size", "must be at least 1, got {}", r.data_size);
  const auto size = static_cast<double>(r.data_size);
  if (!r.q && !r.expected_batch) user_error("neither q nor a batch is given: give one of them");
  if (r.q && !(*r.q > 0 && *r.q <= 1))
    field_error("q", "must be a sampling rate above 0, up to 1, got {}", *r.q);
  if (r.expected_batch && !(*r.expected_batch > 0 && *r.expected_batch <= size)) {
    user_error("a batch of {} from {} samples: allowed is more than 0 and no more than all of them",
               *r.expected_batch, r.data_size);
  }
  if (r.q && r.expected_batch && !same(*r.expected_batch, *r.q * size)) {
    user_error(
        "a batch of {} with q {} and {} samples: allowed is q times the samples, {:g}; give one of "
        "the two",
        *r.expected_batch, *r.q, r.data_size, *r.q * size);
  }
  if (!r.q) r.q = *r.expected_batch / size;
  if (!r.expected_batch) r.expected_batch = *r.q * size;

  const Relation own = relation_of(r.sampler);
  if (r.relation && *r.relation != own) {
    user_error("relation {} with the sampler {}: allowed is {}", name_of(*r.relation),
               name_of(r.sampler), name_of(own));
  }
  r.relation = own;
  if (r.maximum && r.sampler != SamplerKind::poisson)
    field_error("max_batch", "with the sampler {}: allowed is poisson; other batches have one size",
                name_of(r.sampler));
  if (r.sampler != SamplerKind::shuffled) return;
  const double whole = std::round(*r.expected_batch);
  if (!same(*r.expected_batch, whole)) {
    user_error(
        "a shuffled batch of {} samples: allowed is a whole number, for it is a size and not a "
        "mean",
        *r.expected_batch);
  }
  r.expected_batch = whole;
}

void complete_clip(MechanismRequest& r) {
  if (!(r.slack >= 0 && r.slack < 1))
    field_error("slack", "must be from 0 to less than 1, got {}", r.slack);
  if (r.clip != ClipFunction::per_layer) {
    if (!r.layer_norms.empty())
      field_error("layer_norms", "for {} layers with {} clipping: allowed with per-layer",
                  r.layer_norms.size(), name_of(r.clip));
    if (!positive(r.clip_norm)) field_error("clip_norm", "must be positive, got {}", r.clip_norm);
  } else {
    if (r.layer_norms.empty())
      field_error("layer_norms", "are missing: per-layer clipping needs one per layer");
    for (const double norm : r.layer_norms) {
      if (!positive(norm)) field_error("layer_norms", "must be positive, got {}", norm);
    }
    const double sensitivity = layer_sensitivity(r.layer_norms);
    if (r.clip_norm != 0 && !same(r.clip_norm, sensitivity)) {
      field_error(
          "clip_norm",
          "is {} with layers whose norms make {:g}: allowed is sqrt(sum of squares), or none",
          r.clip_norm, sensitivity);
    }
    r.clip_norm = sensitivity;
  }
  if (r.clip != ClipFunction::adaptive) return;
  if (!(r.adaptive.quantile > 0 && r.adaptive.quantile < 1))
    field_error("clip_quantile", "must be between 0 and 1, got {}", r.adaptive.quantile);
  if (!positive(r.adaptive.rate))
    field_error("clip_rate", "must be positive, got {}", r.adaptive.rate);
  if (!positive(r.adaptive.count_deviation)) {
    field_error("count_noise", "must be positive, got {}; a twentieth of the batch is usual",
                r.adaptive.count_deviation);
  }
}

void check_noise(const MechanismRequest& r) {
  check_delta(r.delta);
  if (r.delta * static_cast<double>(r.data_size) >= 1)
    field_error("delta",
                "{0:g}: allowed is less than 1 / {1} (the {3}s), as {2:.0e}; publishing a whole "
                "{3} at random would be within it",
                r.delta, r.data_size, 0.1 / static_cast<double>(r.data_size), drawn_word(r.unit));
  if (r.accountant == AccountantKind::gdp)
    field_error("accountant",
                "gdp: allowed are pld and rdp; gdp is an approximation and decides nothing");
  if (!r.sigma && !r.epsilon) user_error("neither sigma nor epsilon is given: give one of them");
  if (r.sigma && !(*r.sigma >= 0 && std::isfinite(*r.sigma)))
    field_error("sigma", "must be 0 or more, got {}", *r.sigma);
  if (r.steps && *r.steps < 0) field_error("steps", "must be 0 or more, got {}", *r.steps);
  if (!r.epsilon) return;
  if (!positive(*r.epsilon)) field_error("epsilon", "must be positive, got {}", *r.epsilon);
  if (!r.steps)
    field_error("steps", "are missing: epsilon {} needs the steps that it is for", *r.epsilon);
  if (r.sigma && *r.sigma <= 0) {
    field_error("sigma",
                "must be positive with epsilon {1}, got {0}: without noise nothing is private",
                *r.sigma, *r.epsilon);
  }
}

void check_unit(const MechanismRequest& r) {
  if (r.unit == PrivacyUnit::document && !r.one_sequence_a_document) {
    field_error("privacy_unit",
                "document: the data's sequences mix documents or cut one into several; allowed is "
                "sample, or data with one sequence per document");
  }
  if (r.unit != PrivacyUnit::user) return;
  if (!r.users_are_drawn)
    field_error("privacy_unit", "user: the data names no users; pass `unit_key` too");
  if (r.sampler != SamplerKind::poisson)
    field_error("sampler", "{} with `privacy_unit` user: allowed is poisson, which draws users",
                name_of(r.sampler));
}

// Chooses the maximum if that is left open, and refuses one that costs too much. `spent` is
// epsilon as an accountant that knows of no maximum computes it at some delta.
double complete_maximum(MechanismRequest& r, const std::function<double(double delta)>& spent) {
  BatchMaximum& maximum = *r.maximum;
  const double q = *r.q;
  const bool automatic = maximum.most == 0;
  if (!automatic && maximum.most < 1)
    field_error("max_batch", "must be at least 1, got {}", maximum.most);
  if (!r.steps) {
    if (automatic) field_error("steps", "are missing: a maximum is chosen for a number of steps");
    return overflow_chance(r.data_size, q, maximum.most);
  }
  const double share = automatic ? kUsualShare : kLargestShare;
  const double epsilon = r.epsilon ? *r.epsilon : spent(r.delta * (1 - share));
  // Without noise nothing is private, and no maximum makes it worse.
  const double allowed = share * r.delta, counted = std::isinf(epsilon) ? 0 : epsilon;
  const int64_t enough =
      smallest_maximum(r.data_size, q, *r.steps, counted, allowed, maximum.multiple);
  if (automatic) maximum.most = enough;
  const double chance = overflow_chance(r.data_size, q, maximum.most);
  const double cost =
      overflow_delta({{.sigma = 1, .q = q, .steps = *r.steps, .overflow = chance}}, counted);
  if (cost > allowed)
    field_error("max_batch",
                "{}: cutting draws to it adds {:.2g} to delta in {} at epsilon {:.4g}, and {:.2g} "
                "is allowed, a tenth of `delta` {:g}; {} or more would do, or auto",
                maximum.most, cost, quantity(*r.steps, "step"), counted, allowed, r.delta,
                smallest_maximum(r.data_size, q, *r.steps, counted, allowed, 1));
  return chance;
}

// What is counted before the steps that noise is looked for.
std::vector<BasePhase> phases_before(const MechanismRequest& r) {
  std::vector<BasePhase> before = r.base;
  before.insert(before.end(), r.done.phases.begin(), r.done.phases.end());
  return before;
}

double calibrated_sigma(const MechanismRequest& r, const Phase& event) {
  const auto accountant = make_accountant(r.accountant);
  const std::vector<BasePhase> before = phases_before(r);
  if (before.empty())
    return calibrate_sigma(*accountant, *r.epsilon, r.delta, event.q, event.steps,
                           /*tolerance=*/1e-4, event.overflow)
        .sigma;
  const double spent = spent_together(*accountant, by_sampler(before), r.delta).epsilon;
  if (spent >= *r.epsilon && !r.done.phases.empty())
    field_error("epsilon",
                "{}: {} is spent after step {}, and the next one would spend more; allowed is a "
                "larger one",
                *r.epsilon, format_epsilon(spent), r.done.steps);
  if (spent >= *r.epsilon)
    field_error("epsilon",
                "{}: the model's earlier training has spent {:.4f} at delta {:g} (its "
                "privacy.json), and both count; allowed is more than that",
                *r.epsilon, spent, r.delta);
  if (event.q == 0 || event.steps == 0) return 0;
  const std::string what =
      r.done.phases.empty() ? "an earlier training that" : quantity(r.done.steps, "step") + " that";
  return calibrate_sigma(
             [&](double sigma) {
               std::vector<BasePhase> all = before;
               all.push_back({r.sampler, event});
               all.back().phase.sigma = sigma;
               return spent_together(*accountant, by_sampler(all), r.delta);
             },
             *r.epsilon,
             fmt::format("after {} spent {:.4f}, the {} accountant", what, spent,
                         name_of(r.accountant)))
      .sigma;
}

}  // namespace

const NameTable<SamplerKind>& names(SamplerKind) {
  static const NameTable<SamplerKind> table = {
      {SamplerKind::poisson, "poisson"}, {SamplerKind::shuffled, "shuffled", {"fixed", "shuffle"}}};
  return table;
}
const NameTable<Relation>& names(Relation) {
  static const NameTable<Relation> table = {{Relation::add_remove, "add-remove"},
                                            {Relation::zero_out, "zero-out"}};
  return table;
}
const NameTable<PrivacyUnit>& names(PrivacyUnit) {
  static const NameTable<PrivacyUnit> table = {
      {PrivacyUnit::sample, "sample", {"sequence", "example"}},
      {PrivacyUnit::document, "document"},
      {PrivacyUnit::user, "user", {"person"}}};
  return table;
}

Relation relation_of(SamplerKind sampler) {
  return sampler == SamplerKind::shuffled ? Relation::zero_out : Relation::add_remove;
}

std::vector<std::vector<Phase>> by_sampler(const std::vector<BasePhase>& phases) {
  std::map<SamplerKind, std::vector<Phase>> groups;
  for (const BasePhase& of : phases) groups[of.sampler].push_back(of.phase);
  std::vector<std::vector<Phase>> result;
  for (auto& [sampler, group] : groups) result.push_back(std::move(group));
  return result;
}

const char* drawn_word(PrivacyUnit unit) {
  return unit == PrivacyUnit::user ? "user" : "sample";
}

int64_t steps_of_epochs(double epochs, double q) {
  if (!(epochs >= 0)) field_error("epochs", "must be 0 or more, got {}", epochs);
  if (epochs == 0) return 0;
  // 3 epochs at q = 0.1 are 30 steps, though 3 / 0.1 is a little more in binary.
  const double steps = std::ceil(epochs / q * (1 - 1e-12));
  if (!(q > 0) || steps > 9e18)
    field_error("epochs", "{} at q {}: give steps where q is so small", epochs, q);
  return static_cast<int64_t>(steps);
}

Mechanism make_mechanism(const MechanismRequest& request) {
  Mechanism mechanism;
  mechanism.request_ = request;
  MechanismRequest& r = mechanism.request_;
  complete_sampling(r);
  complete_clip(r);
  check_noise(r);
  check_unit(r);
  if (r.sampler == SamplerKind::shuffled)
    mechanism.steps_per_epoch_ = r.data_size / static_cast<int64_t>(*r.expected_batch);
  if (r.maximum)
    mechanism.overflow_ = complete_maximum(r, [&](double delta) {
      std::vector<BasePhase> all = r.base;
      all.push_back({r.sampler, mechanism.event(*r.steps)});
      return spent_together(*make_accountant(r.accountant), by_sampler(all), delta).epsilon;
    });
  if (!r.sigma) {
    r.sigma = calibrated_sigma(r, mechanism.event(r.done.steps, *r.steps));
  } else if (r.epsilon && r.done.phases.empty()) {  // otherwise the ledger says how far it goes
    const double spent = mechanism.epsilon_after(*r.steps).epsilon;
    if (spent > *r.epsilon) {
      field_error("sigma",
                  "{} spends epsilon {} in {} steps: allowed is {}; raise `sigma`, or "
                  "pass `epsilon` alone",
                  *r.sigma, format_epsilon(spent), *r.steps, *r.epsilon);
    }
  }
  const bool split = r.clip == ClipFunction::adaptive && *r.sigma > 0;
  mechanism.gradient_sigma_ =
      split ? adaptive_gradient_sigma(*r.sigma, r.adaptive.count_deviation) : *r.sigma;
  return mechanism;
}

Phase Mechanism::event(int64_t first, int64_t last) const {
  const double sigma = request_.sigma.value_or(0);
  const int64_t steps = std::max<int64_t>(0, last - first);
  if (request_.sampler == SamplerKind::poisson)
    return {.sigma = sigma, .q = q(), .steps = steps, .overflow = overflow_};
  const int64_t begun = last / steps_per_epoch_ + (last % steps_per_epoch_ != 0);
  return {.sigma = sigma, .q = 1, .steps = steps > 0 ? begun - first / steps_per_epoch_ : 0};
}

std::vector<BasePhase> Mechanism::phases_after(int64_t steps) const {
  std::vector<BasePhase> all = phases_before(request_);
  all.push_back({request_.sampler, event(request_.done.steps, steps)});
  return all;
}

Spent Mechanism::epsilon_after(int64_t steps) const {
  VEIL_CHECK(steps >= 0, "{} steps", steps);
  return spent_together(*make_accountant(request_.accountant), by_sampler(phases_after(steps)),
                        request_.delta);
}

Spent Mechanism::base_spent() const {
  std::vector<BasePhase> all = request_.base;
  all.push_back({request_.sampler, event(0)});
  return spent_together(*make_accountant(request_.accountant), by_sampler(all), request_.delta);
}

int64_t Mechanism::steps_within(double epsilon) const {
  if (!(epsilon >= 0)) field_error("epsilon", "must be 0 or more, got {}", epsilon);
  const int64_t unit = std::max<int64_t>(1, steps_per_epoch_);  // epsilon grows from unit to unit
  const auto spent = [&](int64_t units) { return epsilon_after(units * unit).epsilon; };
  int64_t low = 0, high = 1;
  double low_epsilon = 0, high_epsilon = spent(1);
  while (high_epsilon <= epsilon) {
    low = high, low_epsilon = high_epsilon;
    if (high * unit >= kManySteps) return kManySteps;
    high *= 4;
    high_epsilon = spent(high);
  }
  // ln epsilon is nearly straight in ln steps; every third time the middle, so that the bracket
  // closes.
  for (int i = 0; high - low > 1; ++i) {
    double share = 0.5;
    if (i % 3 != 2 && low_epsilon > 0 && std::isfinite(high_epsilon))
      share = std::log(epsilon / low_epsilon) / std::log(high_epsilon / low_epsilon);
    const double ratio = static_cast<double>(high) / static_cast<double>(std::max<int64_t>(1, low));
    const double guess = static_cast<double>(std::max<int64_t>(1, low)) * std::pow(ratio, share) +
                         (i % 2 == 0 ? 1 : -1);
    const int64_t middle = std::clamp(static_cast<int64_t>(std::llround(guess)), low + 1, high - 1);
    const double at = spent(middle);
    if (at <= epsilon) {
      low = middle, low_epsilon = at;
    } else {
      high = middle, high_epsilon = at;
    }
  }
  return low * unit;
}

std::vector<std::string> Mechanism::warnings() const {
  std::vector<std::string> result;
  if (sigma() == 0) result.push_back("sigma is 0: nothing is private.");
  if (request_.sampler == SamplerKind::shuffled) {
    result.push_back(
        "Shuffled batches are no Poisson samples: each epoch is accounted as one plain Gaussian, "
        "for neighbours in "
        "which a "
        "sample's gradient is replaced by nothing. The epsilon of Poisson sampling, often far "
        "smaller, does not hold "
        "for them.");
  }
  if (request_.size_from_data)
    result.push_back(fmt::format("The data set's size, {}, was counted and is declared public.",
                                 request_.data_size));
  return result;
}

std::vector<std::string> Mechanism::summary() const {
  const bool poisson = request_.sampler == SamplerKind::poisson;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("protects    a {} ({} neighbours), delta {:g}",
                  request_.unit_text.empty() ? name_of(request_.unit) : request_.unit_text,
                  name_of(relation()), request_.delta));
  const std::string units = quantity(request_.data_size, drawn_word(request_.unit));
  lines.push_back(poisson
                      ? fmt::format("sampler     poisson, q {:g}: {:g} of {} expected", q(),
                                    expected_batch(), units)
                      : fmt::format("sampler     shuffled, {:g} of {}, {} per epoch",
                                    expected_batch(), units, quantity(steps_per_epoch_, "step")));
  if (batch_maximum() > 0) {
    std::string line = fmt::format("maximum     {} per step, beyond which draws are cut",
                                   quantity(batch_maximum(), drawn_word(request_.unit)));
    if (request_.steps) {
      const double epsilon =
          request_.epsilon ? *request_.epsilon : epsilon_after(*request_.steps).epsilon;
      line +=
          fmt::format(": {:.2g} of delta in {}", overflow_delta({event(*request_.steps)}, epsilon),
                      quantity(*request_.steps, "step"));
    }
    lines.push_back(line);
  }
  std::string clip =
      fmt::format("clipping    {}, C {:g}", name_of(request_.clip), request_.clip_norm);
  if (request_.clip == ClipFunction::per_layer)
    clip += " over " + quantity(std::ssize(request_.layer_norms), "layer");
  if (request_.clip == ClipFunction::adaptive)
    clip += fmt::format(" at first, quantile {:g}", request_.adaptive.quantile);
  if (request_.slack > 0) clip += fmt::format(", slack {:.3g}", request_.slack);
  lines.push_back(clip);
  std::string noise =
      fmt::format("noise       sigma {:g}, deviation {:g} on the sum", sigma(), noise_deviation());
  if (gradient_sigma_ != sigma())
    noise += fmt::format(" (gradients {:g}, count {:g})", gradient_sigma_,
                         request_.adaptive.count_deviation);
  lines.push_back(noise);
  std::string budget = fmt::format("accounting  {}", name_of(request_.accountant));
  if (!poisson) budget += ", a plain Gaussian per epoch";
  if (request_.epsilon)
    budget +=
        fmt::format(", epsilon {:g} in {}", *request_.epsilon, quantity(*request_.steps, "step"));
  lines.push_back(budget);
  if (!request_.base.empty())
    lines.push_back(
        fmt::format("base        epsilon {} was spent before on these parameters and is counted in",
                    format_epsilon(base_spent().epsilon)));
  if (!request_.done.phases.empty() && request_.steps && *request_.steps > request_.done.steps)
    lines.push_back(fmt::format("before      {} spent epsilon {}; the others have what is left",
                                quantity(request_.done.steps, "step"),
                                format_epsilon(epsilon_after(request_.done.steps).epsilon)));
  for (const std::string& warning : warnings()) lines.push_back("warning     " + warning);
  return lines;
}

nlohmann::json Mechanism::json() const {
  nlohmann::json clip = {{"function", name_of(request_.clip)},
                         {"norm", request_.clip_norm},
                         {"slack", request_.slack}};
  if (request_.clip == ClipFunction::per_layer) clip["layer_norms"] = request_.layer_norms;
  if (request_.clip == ClipFunction::adaptive) {
    clip["quantile"] = request_.adaptive.quantile;
    clip["rate"] = request_.adaptive.rate;
    clip["count_deviation"] = request_.adaptive.count_deviation;
  }
  const bool poisson = request_.sampler == SamplerKind::poisson;
  nlohmann::json result = {
      {"unit", name_of(request_.unit)},
      {"relation", name_of(relation())},
      {"sampler", name_of(request_.sampler)},
      {"q", q()},
      {"data_size", request_.data_size},
      {"data_size_source", request_.size_from_data ? "counted, declared public" : "given"},
      {"expected_batch", expected_batch()},
      {"clip", clip},
      {"sensitivity", sensitivity()},
      {"sigma", sigma()},
      {"gradient_sigma", gradient_sigma_},
      {"noise_deviation", noise_deviation()},
      {"delta", request_.delta},
      {"accountant", name_of(request_.accountant)},
      {"event",
       {{"mechanism", poisson ? "poisson-sampled gaussian" : "gaussian"},
        {"sigma", sigma()},
        {"q", event(0).q},
        {"every_steps", poisson ? 1 : steps_per_epoch_}}},
      {"warnings", warnings()}};
  if (!request_.base.empty()) result["base_epsilon"] = base_spent().epsilon;
  if (!request_.unit_text.empty()) result["unit_is"] = request_.unit_text;
  if (batch_maximum() > 0)
    result["batch_maximum"] = {{"most", batch_maximum()}, {"cut_chance", overflow_}};
  if (request_.canaries > 0) result["audit_canaries"] = request_.canaries;
  if (request_.epsilon)
    result["target"] = {{"epsilon", *request_.epsilon}, {"steps", *request_.steps}};
  return result;
}

}  // namespace veil::privacy
