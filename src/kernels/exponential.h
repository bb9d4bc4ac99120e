// The exponential on CPU as plain arithmetic, so that loops over it become vector code; the C library's is a call an element.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace veil {

// e^x within 2 units in the last place (Cody and Waite's reduction, Cephes' polynomial). Below -87.3, where results would be subnormal, it is 0; above 88.3 it
// stays at 2.2e38. What is not a number stays so.
inline float exponential(float x) {
  const float bounded = x > 88.3f ? 88.3f : (x < -87.3f ? -87.3f : x);
  constexpr float kShift =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number, which then stands in the last bits
  const float shifted = bounded * 1.44269504f + kShift, whole = shifted - kShift;
  const float r = (bounded - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127u) << 23;  // kShift's own bits fall off at the top
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.3f ? 0.0f : p * power;
}
inline double exponential(double x) {
  return std::exp(x);
}

}  // namespace veil
