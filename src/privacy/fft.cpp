#include "privacy/fft.h"

#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace veil::privacy {
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
      const Complex even = values[group + j], odd = times(values[group + j + half], roots[j * stride]);
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
    const double angle = -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(count);
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
