#include "audit/statistics.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>

#include "base/error.h"
#include "privacy/numerics.h"

namespace veil::audit {
namespace {

constexpr double kTiny = 1e-300, kExact = 1e-16;

// The root of a growing function in [low, high].
double bisected(double low, double high, const std::function<bool(double)>& too_low) {
  for (int i = 0; i < 200 && high - low > 1e-15 * std::abs(high); ++i) {
    const double middle = 0.5 * (low + high);
    (too_low(middle) ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// Lentz's method for b0 + a1 / (b1 + a2 / (b2 + ...)); term(i) is {a_i, b_i}.
double continued_fraction(double b0, const std::function<std::pair<double, double>(int)>& term) {
  double value = b0 == 0 ? kTiny : b0, c = value, d = 0;
  for (int i = 1; i < 1000000; ++i) {
    const auto [a, b] = term(i);
    d = b + a * d;
    c = b + a / c;
    if (d == 0) d = kTiny;
    if (c == 0) c = kTiny;
    d = 1 / d;
    const double change = c * d;
    value *= change;
    if (std::abs(change - 1) < kExact) break;
  }
  return value;
}

// The regularized lower incomplete gamma function.
double gamma_cdf(double shape, double x) {
  if (x <= 0) return 0;
  const double log_front = shape * std::log(x) - x - std::lgamma(shape);
  if (x < shape + 1) {
    double term = 1 / shape, sum = term;
    for (double n = 1; term > kExact * sum; ++n) sum += term *= x / (shape + n);
    return std::min(1.0, sum * std::exp(log_front));
  }
  const double upper = continued_fraction(x + 1 - shape, [&](int i) {
    return std::pair{-i * (i - shape), x + 2 * i + 1 - shape};
  });
  return std::clamp(1 - std::exp(log_front) / upper, 0.0, 1.0);
}

// The largest t > 0 that a Chernoff bound exp(-rate(t)) with rate growing leaves at alpha / 2.
double chernoff_limit(double scale, double alpha, const std::function<double(double)>& rate) {
  const double wanted = std::log(2 / alpha);
  double high = scale;
  while (rate(high) < wanted) high *= 2;
  return bisected(0, high, [&](double t) { return rate(t) < wanted; });
}

}  // namespace

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

double normal_quantile(double p) {
  VEIL_CHECK(p > 0 && p < 1, "the quantile at {}", p);
  // From the nearer end, so that small probabilities keep their digits.
  if (p > 0.5) return -normal_quantile(1 - p);
  return bisected(-40, 0.1, [&](double z) { return privacy::log_normal_cdf(z) < std::log(p); });
}

double chi_square_cdf(double degrees, double x) {
  return gamma_cdf(degrees / 2, x / 2);
}

double chi_square_quantile(double degrees, double p) {
  VEIL_CHECK(p > 0 && p < 1 && degrees > 0, "the quantile at {} of {} degrees", p, degrees);
  double high = degrees + 1;
  while (chi_square_cdf(degrees, high) < p) high *= 2;
  return bisected(0, high, [&](double x) { return chi_square_cdf(degrees, x) < p; });
}

double beta_cdf(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_cdf(b, a, 1 - x);
  const double log_front = std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) +
                           b * std::log1p(-x) - std::log(a);
  const double fraction = continued_fraction(1, [&](int i) {
    const double m = i / 2;
    const double value = i % 2 == 0 ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                    : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    return std::pair{value, 1.0};
  });
  return std::clamp(std::exp(log_front) / fraction, 0.0, 1.0);
}

double clopper_pearson_upper(int64_t hits, int64_t trials, double alpha) {
  VEIL_CHECK(hits >= 0 && hits <= trials && trials > 0, "{} of {}", hits, trials);
  if (hits == trials) return 1;
  const auto a = static_cast<double>(hits + 1), b = static_cast<double>(trials - hits);
  // Where a rate makes so few hits as rare as alpha.
  return bisected(0, 1, [&](double x) { return 1 - beta_cdf(a, b, x) > alpha; });
}

Interval clopper_pearson(int64_t hits, int64_t trials, double alpha) {
  return {1 - clopper_pearson_upper(trials - hits, trials, alpha / 2),
          clopper_pearson_upper(hits, trials, alpha / 2)};
}

Interval deviation_interval(double squares, int64_t count, double alpha) {
  const auto n = static_cast<double>(count);
  return {std::sqrt(squares / chi_square_quantile(n, 1 - alpha / 2)),
          std::sqrt(squares / chi_square_quantile(n, alpha / 2))};
}

double kolmogorov_distance(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double below = normal_cdf(values[i]);
    distance = std::max(
        {distance, below - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - below});
  }
  return distance;
}

double kolmogorov_limit(int64_t count, double alpha) {
  return std::sqrt(std::log(2 / alpha) / (2 * static_cast<double>(count)));
}

double product_limit(int64_t count, double alpha) {
  const auto n = static_cast<double>(count);
  return chernoff_limit(std::sqrt(n), alpha, [n](double t) {
    const double x = (std::sqrt(n * n + 4 * t * t) - n) / (2 * t);  // the best one
    return x * t + n / 2 * std::log1p(-x * x);
  });
}

double lagged_limit(int64_t count, double alpha) {
  const auto n = static_cast<double>(count);
  return chernoff_limit(std::sqrt(n), alpha, [n](double t) {
    // y = 2 x: y t / 2 + n / 8 ln(1 - y^2), largest at y = (sqrt(n^2 + 16 t^2) - n) / (4 t).
    const double y = (std::sqrt(n * n + 16 * t * t) - n) / (4 * t);
    return y * t / 2 + n / 8 * std::log1p(-y * y);
  });
}

std::vector<double> autocorrelation(const std::vector<double>& values) {
  size_t size = 1;
  while (size < 2 * values.size()) size *= 2;
  std::vector<std::complex<double>> spectrum(size);
  for (size_t i = 0; i < values.size(); ++i) spectrum[i] = values[i];
  privacy::fft(spectrum);
  for (std::complex<double>& value : spectrum) value = std::norm(value);
  privacy::inverse_fft(spectrum);
  std::vector<double> sums(values.size());
  for (size_t lag = 0; lag < sums.size(); ++lag) sums[lag] = spectrum[lag].real();
  return sums;
}

}  // namespace veil::audit
