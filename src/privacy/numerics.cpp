#include "privacy/numerics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace veil::privacy {

namespace {

// ln(erfc(x) e^(x^2)), x >= 25: an asymptotic series, whose next term is below 1e-15 from there on.
double log_scaled_erfc(double x) {
  const double r = 1 / (2 * x * x);
  const double series = 1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r)));
  return -std::log(x) - 0.5 * std::log(std::numbers::pi) + std::log(series);
}

// ln(Phi(-z) e^(z^2 / 2)), z >= 0
double log_scaled_tail(double z) {
  const double x = z / std::numbers::sqrt2;
  return (x < 25 ? std::log(std::erfc(x)) + x * x : log_scaled_erfc(x)) - std::numbers::ln2;
}

}  // namespace

double log_erfc(double x) {
  return x < 25 ? std::log(std::erfc(x)) : log_scaled_erfc(x) - x * x;
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
  // epsilon - far^2 / 2 is -near^2 / 2: for a large mu their difference would have no digits left
  const double near = epsilon / mu - mu / 2, far = epsilon / mu + mu / 2;
  const double first = log_normal_cdf(-near);
  const double second = log_scaled_tail(far) - near * near / 2;
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
  // delta is a difference of exponentials: a few units in the last place of the larger exponent,
  // and of mu, are an error of as much in epsilon, since d delta / d epsilon is the second term.
  const double exponent = std::abs(log_normal_cdf(-high / mu - mu / 2));
  return high + 0x1p-49 * (1 + high + exponent);
}

namespace {

using Complex = std::complex<double>;

// Plain products: std::complex's operator* looks for infinities.
inline Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// One pass of butterflies over groups of `size`: roots[j * stride] = exp(-2 pi i j / size).
void pass(std::vector<Complex>& values, const std::vector<Complex>& roots, size_t size) {
  const size_t half = size / 2, stride = values.size() / size;
  for (size_t group = 0; group < values.size(); group += size) {
    for (size_t j = 0; j < half; ++j) {
      const Complex even = values[group + j],
                    odd = times(values[group + j + half], roots[j * stride]);
      values[group + j] = even + odd;
      values[group + j + half] = even - odd;
    }
  }
}

}  // namespace

void fft(std::vector<Complex>& values) {
  const size_t count = values.size();
  VEIL_CHECK(std::has_single_bit(count), "a transform of {} values", count);
  for (size_t i = 1, reversed = 0; i < count; ++i) {
    size_t bit = count >> 1;
    for (; reversed & bit; bit >>= 1) reversed ^= bit;
    reversed |= bit;
    if (i < reversed) std::swap(values[i], values[reversed]);
  }
  // Each root by its own sine and cosine: products of roots would lose digits.
  std::vector<Complex> roots(count / 2);
  for (size_t j = 0; j < roots.size(); ++j) {
    const double angle =
        -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(count);
    roots[j] = {std::cos(angle), std::sin(angle)};
  }
  for (size_t size = 2; size <= count; size *= 2) pass(values, roots, size);
}

void inverse_fft(std::vector<Complex>& values) {
  const double scale = 1 / static_cast<double>(values.size());
  for (Complex& value : values) value = std::conj(value);
  fft(values);
  for (Complex& value : values) value = std::conj(value) * scale;
}

}  // namespace veil::privacy
