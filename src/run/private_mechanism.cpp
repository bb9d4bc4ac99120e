#include "run/private_mechanism.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/quantity.h"
#include "base/units.h"
#include "run/config_fields.h"

namespace veil {
namespace {

using privacy::ClipFunction;
using privacy::SamplerKind;

}  // namespace

double noise_to_signal(const privacy::Mechanism& mechanism, int64_t trained_parameters) {
  return mechanism.gradient_sigma() * std::sqrt(static_cast<double>(trained_parameters)) /
         mechanism.expected_batch();
}

privacy::Mechanism private_mechanism(const PrivacyConfig& c, const PrivateSetting& setting) {
  privacy::MechanismRequest request;
  request.sampler = c.sampler;
  request.unit = c.unit.value_or(privacy::PrivacyUnit::sample);
  request.unit_text = setting.unit_text;
  request.one_sequence_a_document = setting.one_sequence_a_document;
  request.users_are_drawn = setting.users;
  request.data_size = c.data_size.value_or(setting.samples);
  request.size_from_data = !c.data_size;
  request.canaries = setting.canaries;
  request.expected_batch = setting.expected_batch;
  if (setting.expected_batch > static_cast<double>(setting.samples))
    user_error(
        "the data has {}, fewer than the expected batch of {}: give more, or a smaller "
        "`total_batch_size`",
        quantity(setting.samples, privacy::drawn_word(request.unit)), setting.expected_batch);
  if (!c.max_batch.empty()) {
    request.maximum = {.most = maximum_of(c.max_batch), .multiple = setting.multiple};
    if (c.data_size && *c.data_size < setting.samples)
      field_error("data_size",
                  "{} with `max_batch`: the data has {}, and a larger data set exceeds the maximum "
                  "more often than is accounted for; allowed is no fewer than there are",
                  *c.data_size, setting.samples);
  }
  if (c.sampler == SamplerKind::shuffled && c.data_size && *c.data_size != setting.samples) {
    field_error("data_size",
                "{} with shuffled batches of {} samples: allowed is their number, for it "
                "decides how often a "
                "sample comes; leave it out, or take `sampler` poisson",
                *c.data_size, setting.samples);
  }
  request.clip = c.clip;
  request.clip_norm = c.clip_norm.value_or(1);
  if (c.clip == ClipFunction::per_layer) {
    request.layer_norms = c.layer_norms.empty()
                              ? privacy::equal_layer_norms(request.clip_norm, setting.layers)
                              : c.layer_norms;
    if (static_cast<int>(request.layer_norms.size()) != setting.layers)
      user_error("`layer_norms`: {} are given, the model has {} layers that are clipped apart",
                 request.layer_norms.size(), setting.layers);
    request.clip_norm = 0;
  }
  request.slack = setting.slack;
  request.sigma = c.sigma;
  request.epsilon = c.epsilon;
  request.delta = *c.delta;
  request.accountant = c.accountant;
  request.base = setting.base;
  request.done = setting.done;
  if (setting.steps) {
    request.steps = setting.steps;
  } else {
    const double q = setting.expected_batch / static_cast<double>(request.data_size);
    const int64_t an_epoch =
        request.data_size / std::max<int64_t>(1, static_cast<int64_t>(setting.expected_batch));
    request.steps =
        c.sampler == SamplerKind::poisson
            ? privacy::steps_of_epochs(setting.epochs, q)
            : std::max<int64_t>(1, std::llround(setting.epochs * static_cast<double>(an_epoch)));
  }
  if (c.clip == ClipFunction::adaptive) {
    request.adaptive = {.quantile = c.quantile,
                        .rate = c.clip_rate,
                        .count_deviation = c.count_noise.value_or(setting.expected_batch / 20)};
    // The usual twentieth of a small batch would leave the gradients no budget.
    if (!c.count_noise) {
      const double sigma = c.sigma ? *c.sigma : [&] {
        privacy::MechanismRequest flat = request;
        flat.clip = ClipFunction::abadi;
        return make_mechanism(flat).sigma();
      }();
      request.adaptive.count_deviation = std::max(request.adaptive.count_deviation, sigma);
    }
  }
  return make_mechanism(request);
}

nlohmann::json target_json(const PrivacyConfig& c, int64_t steps) {
  return {{"epsilon", *c.epsilon}, {"steps", steps}};
}

namespace {

// More noise than this many times what a run had would only spoil what it learned.
constexpr double kMostLouder = 10;

// What a model's steps have in common, whatever else changes between them.
void check_continues(const PrivacyConfig& c, const PrivateSetting& setting,
                     const privacy::Ledger& ledger) {
  privacy::LedgerEvent next;
  next.unit = c.unit.value_or(privacy::PrivacyUnit::sample);
  next.sampler = c.sampler;
  ledger.check_follows(next);
  // An epoch's border would be elsewhere for the ledger than for the loader, which continues inside
  // the epoch it was in.
  for (const privacy::LedgerEvent& event : ledger.events) {
    if (event.sampler == SamplerKind::shuffled && event.data_size != setting.samples)
      user_error(
          "the run was begun with {} samples in shuffled batches, now there are {}: allowed is the "
          "same data, or a new run",
          event.data_size, setting.samples);
  }
}

bool same_draws(const PrivacyConfig& c, const privacy::LedgerEvent& last,
                const privacy::Mechanism& now) {
  // One that was chosen follows the micro-batches.
  const bool same_maximum = c.max_batch == "auto" && last.max_batch > 0
                                ? now.batch_maximum() > 0
                                : last.max_batch == now.batch_maximum();
  return same_maximum && last.q == now.q() && last.data_size == now.request().data_size &&
         last.steps_per_epoch == now.steps_per_epoch();
}

// Whether the noise that the last steps had was calibrated for the same budget. Checkpoints of
// earlier versions do not say what it was for: it was what the whole run may have.
bool same_budget(const PrivacyConfig& c, const PrivateSetting& whole, const nlohmann::json& stored,
                 double sigma, int64_t steps) {
  constexpr double kCalibrated = 1e-3;
  if (!stored.contains(kTarget))
    return std::abs(private_mechanism(c, whole).sigma() - sigma) <= kCalibrated * sigma;
  return stored[kTarget] == target_json(c, steps) &&
         stored.value("delta", nlohmann::json()) == *c.delta &&
         stored.value("accountant", nlohmann::json()) == name_of(c.accountant);
}

}  // namespace

privacy::Mechanism continued_mechanism(const PrivacyConfig& c, const PrivateSetting& setting,
                                       const privacy::JournalStart& start,
                                       const nlohmann::json& stored) {
  check_continues(c, setting, start.ledger);
  if (!c.epsilon || c.sigma || start.steps < 1 || start.ledger.steps() < 1)
    return private_mechanism(c, setting);
  const privacy::LedgerEvent& last = start.ledger.events.back();
  PrivacyConfig kept = c;
  kept.sigma = last.sigma;
  PrivateSetting rest = setting;
  rest.done = {start.steps, start.ledger.phases()};
  const privacy::Mechanism same = private_mechanism(kept, rest);
  const int64_t steps = *same.request().steps;
  if (start.steps >= steps ||
      (same_draws(c, last, same) && same_budget(c, setting, stored, last.sigma, steps)))
    return same;
  const privacy::Mechanism other = private_mechanism(c, rest);
  if (other.sigma() > kMostLouder * last.sigma)
    field_error("epsilon",
                "{}: {} is spent after step {}, and the steps up to {} would need sigma {:.3g} "
                "where it was {:.3g}; allowed is a larger one, or fewer steps",
                *c.epsilon, format_epsilon(other.epsilon_after(start.steps).epsilon), start.steps,
                steps, other.sigma(), last.sigma);
  return other;
}

std::optional<double> batch_that_is_heard(const privacy::Mechanism& mechanism,
                                          const PrivacyConfig& given, int64_t trained) {
  const bool calibrated = !given.sigma;
  const auto heard = [&](double batch) {
    privacy::MechanismRequest request = mechanism.request();
    request.q.reset();
    request.expected_batch = request.sampler == SamplerKind::shuffled ? std::ceil(batch) : batch;
    request.maximum.reset();
    request.done = {};
    if (!given.count_noise) request.adaptive.count_deviation *= batch / mechanism.expected_batch();
    if (calibrated) {
      request.sigma.reset();
      request.accountant = privacy::AccountantKind::rdp;  // quick, and good enough for advice
    }
    try {
      return noise_to_signal(make_mechanism(request), trained) <= kLoudNoise;
    } catch (const UserError&) {
      return false;  // no noise keeps such a batch within epsilon
    }
  };
  double low = mechanism.expected_batch(),
         high = static_cast<double>(mechanism.request().data_size);
  if (!heard(high)) return {};
  while (high > 1.05 * low) {
    const double middle = std::sqrt(low * high);
    (heard(middle) ? high : low) = middle;
  }
  return std::ceil(high);
}

}  // namespace veil
