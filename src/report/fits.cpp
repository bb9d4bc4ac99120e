#include "report/fits.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace veil {
namespace {

constexpr double kTolerance = 0.02;  // a law is named if no point is farther from it
constexpr int kTerms = 3;            // 1, T and T^2
constexpr double kTokens = 1000;     // slopes are shown for this many tokens

using Points = std::vector<std::pair<double, double>>;
using Terms = std::array<double, kTerms>;

// Least squares of the relative residuals over the terms that `used` has a bit for, in units of the
// longest T; nothing if a coefficient comes out below 0 or is not determined.
std::optional<Terms> solve_terms(const Points& points, unsigned used) {
  std::vector<int> terms;
  for (int k = 0; k < kTerms; ++k) {
    if (used >> k & 1U) terms.push_back(k);
  }
  const size_t n = terms.size();
  std::vector<std::vector<double>> rows(n, std::vector<double>(n + 1, 0));
  for (const auto& [x, y] : points) {
    for (size_t i = 0; i < n; ++i) {
      const double left = std::pow(x, terms[i]) / y;
      for (size_t k = 0; k < n; ++k) rows[i][k] += left * std::pow(x, terms[k]) / y;
      rows[i][n] += left;
    }
  }
  for (size_t i = 0; i < n; ++i) {  // Gauss-Jordan; the matrix is positive definite
    if (!(rows[i][i] > 0)) return {};
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (size_t k = i; k <= n; ++k) rows[r][k] -= factor * rows[i][k];
    }
  }
  Terms found = {};
  for (size_t i = 0; i < n; ++i) {
    const double value = rows[i][n] / rows[i][i];
    if (!std::isfinite(value) || value < 0) return {};
    found[static_cast<size_t>(terms[i])] = value;
  }
  return found;
}

double deviation_of(const Points& points, const Terms& terms) {
  double largest = 0;
  for (const auto& [x, y] : points)
    largest = std::max(largest, std::abs(terms[0] + (terms[1] + terms[2] * x) * x - y) / y);
  return largest;
}

// The nearest law that has no term above `degree` and one of it.
std::optional<Terms> nearest_law(const Points& points, int degree) {
  std::optional<Terms> best;
  const unsigned top = 1U << degree;
  for (unsigned lower = 0; lower < top; ++lower) {
    const auto terms = solve_terms(points, top | lower);
    if (terms && (!best || deviation_of(points, *terms) < deviation_of(points, *best)))
      best = terms;
  }
  return best;
}

// Rounded up, so that "within" holds.
std::string at_most(double share) {
  return fmt::format("{:.1f}%", std::max(0.0, std::ceil(1000 * share - 1e-9)) / 10);
}

}  // namespace

std::optional<GrowthFit> fit_growth(const Points& points) {
  std::map<double, std::pair<double, int>> sums;
  for (const auto& [x, y] : points) {
    if (!(x > 0) || !(y > 0) || !std::isfinite(x) || !std::isfinite(y)) continue;
    sums[x].first += y;
    ++sums[x].second;
  }
  if (sums.size() < 2) return {};
  Points scaled;
  const double longest = sums.rbegin()->first;
  for (const auto& [x, sum] : sums) scaled.emplace_back(x / longest, sum.first / sum.second);
  GrowthFit fit{.lengths = static_cast<int>(scaled.size()),
                .first_length = sums.begin()->first,
                .last_length = longest,
                .first = scaled.front().second,
                .last = scaled.back().second};
  for (int degree = 0; degree < kTerms && degree + 1 < fit.lengths; ++degree) {
    const auto terms = nearest_law(scaled, degree);
    if (!terms || deviation_of(scaled, *terms) > kTolerance) continue;
    fit.law = static_cast<Law>(degree);
    fit.constant = (*terms)[0];
    fit.linear = (*terms)[1] / longest;
    fit.square = (*terms)[2] / (longest * longest);
    fit.deviation = deviation_of(scaled, *terms);
    break;
  }
  return fit;
}

std::string law_text(const GrowthFit& fit, const ShowAmount& show) {
  const std::string slope = show(fit.linear * kTokens) + " per 1000 tokens";
  switch (fit.law) {
    case Law::constant:
      return show(fit.constant);
    case Law::linear:
      return fit.constant > 0 ? show(fit.constant) + " + " + slope : slope;
    case Law::quadratic: {
      const double length = fit.last_length;
      return fmt::format("{} + {} + {} at T = {:.0f}", show(fit.constant),
                         show(fit.linear * length), show(fit.square * length * length), length);
    }
    case Law::untold:
      break;
  }
  return "-";
}

std::string growth_words(const GrowthFit& fit, const ShowAmount& show) {
  const std::string range = fmt::format("{:.0f} to {:.0f}", fit.first_length, fit.last_length);
  switch (fit.law) {
    case Law::constant:
      return fmt::format("stays at {} from T = {}, within {}", show(fit.constant), range,
                         at_most(fit.deviation));
    case Law::linear:
      return fmt::format("grows {} T from {}: {}{} per 1000 tokens, within {}",
                         fit.constant > 0 ? "linearly with" : "in proportion to", range,
                         fit.constant > 0 ? show(fit.constant) + " plus " : "",
                         show(fit.linear * kTokens), at_most(fit.deviation));
    case Law::quadratic: {
      const double length = fit.last_length;
      return fmt::format(
          "grows faster than linearly with T from {}: at T = {:.0f} {} plus {} by T and {} by T^2, "
          "within {}",
          range, length, show(fit.constant), show(fit.linear * length),
          show(fit.square * length * length), at_most(fit.deviation));
    }
    case Law::untold:
      break;
  }
  return fmt::format("is {:.2f} times as large at T = {:.0f} as at T = {:.0f} ({})",
                     fit.last / fit.first, fit.last_length, fit.first_length,
                     fit.lengths <= kTerms
                         ? fmt::format("{} lengths cannot tell the law", fit.lengths)
                         : "neither a + bT nor a + bT + cT^2 is within 2% of every length");
}

std::string growth_label(const GrowthFit& fit) {
  switch (fit.law) {
    case Law::constant:
      return "constant";
    case Law::linear:
      return "linear";
    case Law::quadratic:
      return "quadratic";
    case Law::untold:
      break;
  }
  return "not told";
}

}  // namespace veil
