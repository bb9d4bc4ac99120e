#include "privacy/invariants.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/clip_coefficient.h"

namespace veil::privacy {
namespace {

template <typename... Args>
[[noreturn]] void leaves_the_plan(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(
      fmt::format("the run is stopped, for it does not follow its privacy plan: {}. Do not release "
                  "what it made; this is an error of Veil, please report it",
                  fmt::format(format, std::forward<Args>(args)...)),
      kExitFailed);
}

void expect_equal(const char* what, double found, double planned) {
  // The same number, computed in two ways.
  if (!(std::fabs(found - planned) <= 1e-12 * std::fabs(planned)))
    leaves_the_plan("{} is {}, planned is {}", what, found, planned);
}

double root_of_squares(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// Chernoff: at most this many nats of surprise that n draws at rate q give `drawn`, on its side of
// the mean.
double surprise(int64_t n, double q, int64_t drawn) {
  const double a = static_cast<double>(drawn) / static_cast<double>(n);
  const auto part = [](double found, double expected) {
    return found == 0 ? 0 : found * std::log(found / expected);
  };
  return static_cast<double>(n) * (part(a, q) + part(1 - a, 1 - q));
}

}  // namespace

void expect_planned(const PrivateStep& step, const Mechanism& mechanism) {
  if (step.clip != mechanism.request().clip) leaves_the_plan("another clip function is used");
  expect_equal("the clip norm", root_of_squares(step.clip_norms), mechanism.request().clip_norm);
  expect_equal("the noise's deviation", step.noise_multiplier * root_of_squares(step.clip_norms),
               mechanism.noise_deviation());
  expect_equal("the expected batch", step.expected_batch, mechanism.expected_batch());
}

void expect_counted(const LedgerEvent& event, const Mechanism& mechanism, int64_t step) {
  if (step <= event.first || step > event.reached)
    leaves_the_plan("step {} is not in the ledger, which counts steps {} to {}", step,
                    event.first + 1, event.reached);
  if (event.sampler != mechanism.request().sampler || event.unit != mechanism.request().unit ||
      event.clip != mechanism.request().clip)
    leaves_the_plan("the ledger counts steps of another mechanism");
  expect_equal("the ledger's sigma", event.sigma, mechanism.sigma());
  expect_equal("the ledger's sampling rate", event.q, mechanism.q());
  expect_equal("the ledger's expected batch", event.expected_batch, mechanism.expected_batch());
}

void expect_drawn(const Mechanism& mechanism, int64_t units, int64_t drawn) {
  if (mechanism.request().sampler == SamplerKind::shuffled) {
    // Fewer if the data holds fewer: the sum is divided by the planned size all the same.
    if (drawn > std::llround(mechanism.expected_batch()))
      leaves_the_plan("a batch has {} samples, planned are {}", drawn, mechanism.expected_batch());
    return;
  }
  if (drawn > units) leaves_the_plan("{} were drawn of {}", drawn, units);
  if (mechanism.batch_maximum() > 0 && drawn > mechanism.batch_maximum())
    leaves_the_plan("{} were drawn, and {} are the maximum", drawn, mechanism.batch_maximum());
  // Of a draw that was cut nothing more is known.
  if (mechanism.batch_maximum() > 0 && drawn == mechanism.batch_maximum()) return;
  constexpr double kMostNats = 46.06;  // 20 log 10
  if (surprise(units, mechanism.q(), drawn) > kMostNats)
    leaves_the_plan("{} of {} were drawn at the rate {}", drawn, units, mechanism.q());
}

void expect_clipped(const ClippedNorms& norms) {
  // Norm and coefficient are doubles; their product rounds a few times.
  constexpr double kRounding = 1e-12;
  const auto layers = static_cast<int64_t>(norms.clip_norms.size());
  std::vector<double> sums(norms.clip_norms.size());
  for (int64_t i = 0; i < norms.samples; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t p = 0; p < norms.params; ++p)
      sums[static_cast<size_t>(norms.layer_of_param[static_cast<size_t>(p)])] +=
          norms.squared[p * norms.samples + i];
    for (int64_t layer = 0; layer < layers; ++layer) {
      const double squared = sums[static_cast<size_t>(layer)],
                   c = norms.coefficients[layer * norms.samples + i],
                   most = norms.clip_norms[static_cast<size_t>(layer)];
      if (c == 0) continue;
      // The norm itself is not private, and is not told.
      if (!(usable_squared_norm(squared) && c > 0 &&
            c * clamped_norm(squared) <= most * (1 + kRounding)))
        leaves_the_plan("a sample moves the sum by more than the clip norm, {}", most);
    }
  }
}

void expect_left_out(const std::vector<double>& coefficients) {
  for (const double c : coefficients) {
    if (c != 0) leaves_the_plan("a sample that is not of this sum moves it");
  }
}

void expect_weights(const std::vector<double>& coefficients) {
  for (const double c : coefficients) {
    if (!std::isfinite(c) || c < 0) leaves_the_plan("a sample of some rank has the weight {}", c);
  }
}

void expect_noised(const std::string& unit, int64_t noised, int64_t elements) {
  if (noised != elements)
    leaves_the_plan("{} elements of {} got noise, and it has {}", noised, unit, elements);
}

void expect_one_update(const std::string& unit, int64_t updates) {
  if (updates != 1)
    leaves_the_plan("{} was updated, and got noise, {} times in a step, planned is once", unit,
                    updates);
}

}  // namespace veil::privacy
