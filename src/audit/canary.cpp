#include "audit/canary.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "privacy/numerics.h"
#include "privacy/pld.h"
#include "record/verify_record.h"

namespace veil::audit {
namespace {

constexpr double kCurveAccuracy = 1e-3;
constexpr int kCurvePoints = 28, kFigurePoints = 80;
constexpr int64_t kMostDraws = 4000000;

bool plain_gaussian(const privacy::Phase& phase) {
  return phase.q == 1;
}

double plain_mu(const privacy::Phase& phase) {
  return std::sqrt(static_cast<double>(phase.steps)) / phase.sigma;
}

}  // namespace

double log_likelihood_ratio(double seen, double distance, double deviation, double q) {
  const double ratio = distance * (2 * seen - distance) / (2 * deviation * deviation);
  if (q == 1) return ratio;
  return privacy::log_add(std::log1p(-q), std::log(q) + ratio);
}

TradeOff::TradeOff(const privacy::Phase& phase) {
  if (plain_gaussian(phase)) {
    mu_ = plain_mu(phase);
    return;
  }
  // From where delta is nearly that of epsilon 0 to where it is next to nothing.
  const double most =
      std::max(0.5, privacy::pld_epsilon_bounds({phase}, 1e-7, kCurveAccuracy).upper);
  for (int i = 0; i < kCurvePoints; ++i) {
    const double share = static_cast<double>(i) / (kCurvePoints - 1),
                 epsilon = most * share * share;
    curve_.emplace_back(
        epsilon, std::min(1.0, privacy::pld_delta_bounds({phase}, epsilon, kCurveAccuracy).upper));
  }
}

double TradeOff::false_negatives(double alpha) const {
  if (alpha >= 1) return 0;
  if (mu_ > 0) return alpha <= 0 ? 1 : normal_cdf(normal_quantile(1 - alpha) - mu_);
  double least = 0;
  for (const auto& [epsilon, delta] : curve_)
    least = std::max(
        {least, 1 - delta - std::exp(epsilon) * alpha, std::exp(-epsilon) * (1 - delta - alpha)});
  return least;
}

void judge_scores(const std::vector<double>& with, const std::vector<double>& without,
                  const ClaimedRun& claimed, double confidence, AuditRecord& record) {
  const double alpha = 1 - confidence;
  AuditTest test;
  test.pairs = std::ssize(with);
  test.threshold = 0;
  const auto guessed = [](double score) { return score > 0; };
  test.false_positives = std::count_if(without.begin(), without.end(), guessed);
  test.false_negatives = test.pairs - std::count_if(with.begin(), with.end(), guessed);
  // Half of alpha for each; the two may depend on each other.
  test.false_positive_high = clopper_pearson_upper(test.false_positives, test.pairs, alpha / 2);
  test.false_negative_high = clopper_pearson_upper(test.false_negatives, test.pairs, alpha / 2);
  const double fpr = test.false_positive_high, fnr = test.false_negative_high;
  const privacy::Phase& phase = claimed.phase;
  if (phase.q == 1 && phase.steps == 1) {
    test.conversion = "Gaussian DP: one step at q = 1";
    const double mu = fpr >= 1 || fnr >= 1 ? 0
                                           : -normal_quantile(std::max(fpr, 1e-300)) -
                                                 normal_quantile(std::max(fnr, 1e-300));
    record.epsilon_low = mu > 0 ? privacy::gaussian_epsilon(mu, claimed.delta) : 0;
  } else {
    test.conversion = "the accountant's trade-off curve, inverted";
    // A sigma whose every test errs more often than this one did is refuted; the smallest such.
    const auto refuted = [&](double sigma) {
      return TradeOff({.sigma = sigma, .q = phase.q, .steps = phase.steps}).false_negatives(fpr) >
             fnr;
    };
    double low = phase.sigma / 8, high = phase.sigma * 64;
    if (!refuted(high)) {
      record.epsilon_low = 0;
    } else {
      for (int i = 0; i < 16 && high / low > 1.002; ++i) {
        const double middle = std::sqrt(low * high);
        (refuted(middle) ? high : low) = middle;
      }
      record.epsilon_low = privacy::pld_epsilon_bounds(
                               {{.sigma = high, .q = phase.q, .steps = phase.steps}}, claimed.delta)
                               .lower;
    }
  }
  record.test = test;

  std::vector<double> no = without, yes = with;
  std::sort(no.rbegin(), no.rend());
  std::sort(yes.rbegin(), yes.rend());
  const TradeOff curve(phase);
  for (int i = 0; i <= kFigurePoints; ++i) {
    const double rate = static_cast<double>(i) / kFigurePoints;
    record.claimed_roc.push_back({rate, 1 - curve.false_negatives(rate)});
    const auto place = static_cast<size_t>(rate * static_cast<double>(no.size() - 1));
    const double threshold = no[place];
    const auto caught =
        std::count_if(yes.begin(), yes.end(), [&](double s) { return s > threshold; });
    record.roc.push_back({rate, static_cast<double>(caught) / static_cast<double>(yes.size())});
  }
}

AuditRecord audit_canary(const AuditOptions& options, const AuditPlace& place) {
  const double begin_ms = steady_ms();
  const auto progress = [&](const std::string& what) {
    if (place.on_progress) place.on_progress(what);
  };
  progress("setting up the run");
  AuditedRun audited(options, place);
  const privacy::Mechanism& mechanism = audited.mechanism();
  AuditRecord record;
  record.kind = "canary";
  record.confidence = options.confidence;
  record.claim = audited.claim();
  const privacy::Phase phase = mechanism.event(record.claim.steps);
  if (options.pairs * phase.steps > kMostDraws)
    user_error(
        "{} pairs of {} steps: allowed are {} draws of noise in all; give the run fewer "
        "`steps`, as 1, or fewer --pairs",
        options.pairs, phase.steps, kMostDraws);

  // The worst of the canaries, found by runs of the trainer.
  AuditedRun::Move worst;
  for (const HardSample& sample : audited.hard_samples()) {
    if (sample.change) continue;  // the noise below starts from the run's own parameters
    progress("a canary: " + sample.name);
    const AuditedRun::Move move = audited.move_by(sample);
    record.canaries.push_back({sample.name, move.distance, move.allowed});
    if (std::isfinite(move.distance) && move.distance > worst.distance) worst = move;
    if (!(move.distance <= move.allowed))
      record.failures.push_back(
          fmt::format("sensitivity: the canary '{}' moves the sum by {:.6g} "
                      "C, allowed is {:.6g}",
                      sample.name, move.distance, move.allowed));
  }
  if (!(worst.distance > 0)) user_error("no canary moves the sum: every gradient is 0");
  const double scale = audited.expected_batch() / audited.clip_norm();
  const Tensor direction = worst.difference.div(worst.difference.norm());
  const double deviation = mechanism.noise_deviation() / audited.clip_norm();
  // The trainer's order for one sample: whether the canary is in a step.
  const std::unique_ptr<data::Order> order =
      phase.q < 1 ? audited.order(audited.one_unit()) : nullptr;
  std::vector<double> with, without;
  int64_t step = 0;
  for (int64_t pair = 0; pair < options.pairs; ++pair) {
    if (pair % 256 == 0) progress(fmt::format("{} of {} pairs", pair, options.pairs));
    double yes = 0, no = 0;
    for (int64_t s = 0; s < phase.steps; ++s) {
      ++step;
      const double seen = scale * audited.noise(step).dot(direction).item<double>();
      const double drawn =
          order ? audited.sum_over_ranks(static_cast<double>(drawn_here(*order, step - 1))) : 1;
      no += log_likelihood_ratio(seen, worst.distance, deviation, phase.q);
      yes += log_likelihood_ratio(seen + (drawn > 0 ? worst.distance : 0), worst.distance,
                                  deviation, phase.q);
    }
    with.push_back(yes);
    without.push_back(no);
  }
  progress("the bound");
  judge_scores(with, without, {phase, record.claim.delta}, options.confidence, record);
  conclude(record);
  record.seconds = (steady_ms() - begin_ms) / 1e3;
  return record;
}

}  // namespace veil::audit
