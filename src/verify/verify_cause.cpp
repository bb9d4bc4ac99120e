#include "verify/verify_cause.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace veil {
namespace {

using Kind = VerifyParamKind;
using Rows = std::vector<std::vector<double>>;

// The whole squared norm of each sample; one that is almost 0 is measured against the others.
std::vector<double> wholes(const VerifyDifferences& found) {
  const size_t samples = found.expected_squared.empty() ? 0 : found.expected_squared[0].size();
  std::vector<double> whole(samples, 0.0);
  for (const auto& row : found.expected_squared) {
    for (size_t i = 0; i < samples; ++i) whole[i] += row[i];
  }
  const double largest = whole.empty() ? 0 : *std::max_element(whole.begin(), whole.end());
  for (double& value : whole) value = std::max(value, std::max(1e-6 * largest, 1e-300));
  return whole;
}

// Larger than anything if it is not a number.
double worse(double a, double b) {
  return !(b <= a) ? (std::isnan(b) ? HUGE_VAL : b) : a;
}

double norm_difference_at(const VerifyDifferences& found, const std::vector<double>& whole,
                          size_t p, size_t i) {
  const double difference =
      std::abs(found.squared[p][i] - found.expected_squared[p][i]) / (2 * whole[i]);
  return std::isnan(difference) ? HUGE_VAL : difference;
}

bool of_kinds(const VerifyDifferences& found, const std::set<size_t>& params,
              std::set<Kind> kinds) {
  return std::all_of(params.begin(), params.end(),
                     [&](size_t p) { return kinds.count(found.kinds[p]) > 0; });
}

// Whether every squared norm is the sum of those that stand at its place on all ranks.
bool summed_over_ranks(const VerifyDifferences& found, const std::vector<double>& whole) {
  if (found.world < 2) return false;
  const size_t samples = whole.size(), share = samples / static_cast<size_t>(found.world);
  for (size_t p = 0; p < found.squared.size(); ++p) {
    for (size_t i = 0; i < samples; ++i) {
      double sum = 0, largest = 0;
      for (size_t place = i % share; place < samples; place += share) {
        sum += found.expected_squared[p][place];
        largest = std::max(largest, whole[place]);
      }
      if (!(std::abs(found.squared[p][i] - sum) <= 0.01 * largest)) return false;
    }
  }
  return true;
}

std::string norm_cause(const VerifyDifferences& found, const std::vector<double>& whole,
                       const std::set<size_t>& params, const std::set<size_t>& samples,
                       bool finite) {
  if (!finite)
    return "a norm that is not finite: an overflow, or numbers read before they were written";
  if (summed_over_ranks(found, whole))
    return "reduction: squared norms are summed over the ranks, place by place; a sample's norm is "
           "its own rank's";
  if (of_kinds(found, params, {Kind::bias}))
    return "bias norm: a bias's gradient is summed over the tokens before it is squared";
  if (of_kinds(found, params, {Kind::tied_table}))
    return "tied weight: table and head are one gradient, so their cross-term belongs to the norm "
           "(or repeated tokens: "
           "rows of equal "
           "tokens are summed before they are squared)";
  if (of_kinds(found, params, {Kind::table}))
    return "repeated tokens: rows of equal tokens of a sample are summed before they are squared";
  const bool only_padded =
      std::all_of(samples.begin(), samples.end(), [&](size_t i) { return found.padded[i]; }) &&
      std::count(found.padded.begin(), found.padded.end(), false) > 0;
  if (only_padded) return "padding: only samples with padding or ignored targets differ";
  if (found.world > 1) {
    const size_t share = whole.size() / static_cast<size_t>(found.world);
    std::set<size_t> ranks;
    for (size_t i : samples) ranks.insert(i / share);
    if (ranks.size() < static_cast<size_t>(found.world))
      return "reduction or gather: only some ranks' norms differ";
  }
  return "the rule that finds these parameters' norms";
}

std::string sum_cause(const VerifyDifferences& found, const std::set<size_t>& params) {
  if (found.sums.size() > 1) {
    for (const auto& of_rank : found.sums) {
      const bool right = std::all_of(of_rank.begin(), of_rank.end(),
                                     [&](double d) { return d <= found.tolerance; });
      if (right) return "reduction: ranks hold different sums";
    }
  }
  if (found.difference_with_uncounted <= 10 * found.tolerance)
    return "padding: the sample that fills the last micro-batch up is counted";
  if (found.difference_after_ratio <= 10 * found.tolerance) {
    return fmt::format("{}: all sums are {:.4g} times what they should be",
                       found.world > 1 ? "reduction" : "scale", found.ratio);
  }
  if (of_kinds(found, params, {Kind::bias})) return "a bias's gradient";
  if (of_kinds(found, params, {Kind::tied_table}))
    return "tied weight: a table's two gradients are one sum";
  if (of_kinds(found, params, {Kind::table})) return "repeated tokens: rows of equal tokens add up";
  return found.squared.empty()
             ? "the weight gradient itself, or its reduction"
             : "what was kept or booked of these parameters, or its sum with the coefficients";
}

}  // namespace

double VerifyDifferences::sum_difference() const {
  double largest = 0;
  for (const auto& of_rank : sums) {
    for (double difference : of_rank) largest = worse(largest, difference);
  }
  return largest;
}

double VerifyDifferences::norm_difference() const {
  const std::vector<double> whole = wholes(*this);
  double largest = 0;
  for (size_t p = 0; p < squared.size(); ++p) {
    for (size_t i = 0; i < whole.size(); ++i)
      largest = worse(largest, norm_difference_at(*this, whole, p, i));
  }
  return largest;
}

double VerifyDifferences::coefficient_difference() const {
  double largest = 0, scale = 1e-300;
  for (const auto& row : expected_coefficients) {
    for (double c : row) scale = std::max(scale, c);
  }
  for (size_t l = 0; l < coefficients.size(); ++l) {
    for (size_t i = 0; i < coefficients[l].size(); ++i)
      largest = worse(largest, std::abs(coefficients[l][i] - expected_coefficients[l][i]) / scale);
  }
  return largest;
}

std::optional<VerifyFailure> find_failure(const VerifyDifferences& found) {
  const std::vector<double> whole = wholes(found);
  const size_t share = std::max<size_t>(1, whole.size() / static_cast<size_t>(found.world));
  VerifyFailure failure;
  if (found.norm_difference() > found.tolerance) {
    std::set<size_t> params, samples;
    double worst = 0;
    bool finite = true;
    for (size_t p = 0; p < found.squared.size(); ++p) {
      for (size_t i = 0; i < whole.size(); ++i) {
        finite = finite && std::isfinite(found.squared[p][i]);
        const double difference = norm_difference_at(found, whole, p, i);
        if (difference <= found.tolerance) continue;
        params.insert(p);
        samples.insert(i);
        if (difference <= worst) continue;
        worst = difference;
        failure.parameter = found.names[p];
        failure.sample = static_cast<int64_t>(i);
      }
    }
    failure.what = "norm";
    failure.rank = static_cast<int>(static_cast<size_t>(failure.sample) / share);
    failure.cause = norm_cause(found, whole, params, samples, finite);
    return failure;
  }
  if (found.coefficient_difference() > found.tolerance) {
    failure.what = "coefficient";
    double worst = -1;
    for (size_t l = 0; l < found.coefficients.size(); ++l) {
      for (size_t i = 0; i < found.coefficients[l].size(); ++i) {
        const double difference =
            std::abs(found.coefficients[l][i] - found.expected_coefficients[l][i]);
        if (difference <= worst) continue;
        worst = difference;
        failure.sample = static_cast<int64_t>(i);
      }
    }
    failure.rank = static_cast<int>(static_cast<size_t>(failure.sample) / share);
    const bool of_padding =
        static_cast<size_t>(failure.sample) + 1 == whole.size() && whole.size() > 1;
    failure.cause = of_padding
                        ? "padding: the sample that fills the last micro-batch up has a coefficient"
                        : "the clip function: norms are right and coefficients are not";
    return failure;
  }
  if (!(found.sum_difference() > found.tolerance)) return std::nullopt;
  failure.what = "gradient";
  std::set<size_t> params;
  double worst = 0;
  for (size_t r = 0; r < found.sums.size(); ++r) {
    for (size_t p = 0; p < found.sums[r].size(); ++p) {
      const double difference = worse(0, found.sums[r][p]);
      if (difference <= found.tolerance) continue;
      params.insert(p);
      if (difference <= worst) continue;
      worst = difference;
      failure.parameter = found.names[p];
      failure.rank = static_cast<int>(r);
    }
  }
  failure.cause = sum_cause(found, params);
  return failure;
}

}  // namespace veil
