#include "privacy/normal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace veil::privacy {

double log_erfc(double x) {
  if (x < 25) return std::log(std::erfc(x));
  // Asymptotic series; the next term is below 1e-15 from here on.
  const double r = 1 / (2 * x * x);
  const double series = 1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r)));
  return -x * x - std::log(x) - 0.5 * std::log(std::numbers::pi) + std::log(series);
}

double log_normal_cdf(double z) {
  return log_erfc(-z / std::numbers::sqrt2) - std::numbers::ln2;
}

double log_add(double a, double b) {
  const double high = std::max(a, b);
  if (std::isinf(high)) return high;
  return high + std::log1p(std::exp(std::min(a, b) - high));
}

double gaussian_delta(double mu, double epsilon) {
  if (mu <= 0) return 0;
  if (std::isinf(mu)) return 1;
  const double first = log_normal_cdf(-epsilon / mu + mu / 2);
  const double second = epsilon + log_normal_cdf(-epsilon / mu - mu / 2);
  return second >= first ? 0 : std::exp(first) * -std::expm1(second - first);
}

double gaussian_epsilon(double mu, double delta) {
  if (std::isinf(mu)) return std::numeric_limits<double>::infinity();
  if (gaussian_delta(mu, 0) <= delta) return 0;
  double low = 0, high = 1;
  while (gaussian_delta(mu, high) > delta) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 200 && high - low > 1e-15 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (gaussian_delta(mu, middle) > delta ? low : high) = middle;
  }
  return high;
}

}  // namespace veil::privacy
