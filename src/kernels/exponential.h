// The exponential on CPU as plain arithmetic, so that loops over it become vector code; the C
// library's is a call an element.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace veil {

// e^x within 2 units in the last place (Cody and Waite's reduction, Cephes' polynomial). Below
// -87.3, where results would be subnormal, it is 0; above 88.3 it stays at 2.2e38. What is not a
// number stays so. Choices are made between integers: comparisons of floating-point numbers may
// trap, so the compiler keeps them as branches, and a loop with branches stays scalar.
inline float exponential(float x) {
  constexpr int32_t kSign = INT32_MIN, kInfinite = 0x7F800000;
  constexpr int32_t kHighest = std::bit_cast<int32_t>(88.3f),
                    kLowest = std::bit_cast<int32_t>(87.3f);
  const int32_t given = std::bit_cast<int32_t>(x), magnitude = given & ~kSign;
  const bool negative = given < 0;
  const int32_t most = negative ? kLowest : kHighest;
  const bool outside = (magnitude > most) & (magnitude <= kInfinite);
  const float bounded = std::bit_cast<float>(outside ? most | (given & kSign) : given);

  // 1.5 * 2^23: adding it rounds to a whole number, which then is in the last bits
  constexpr float kShift = 12582912.0f;
  const float shifted = bounded * 1.44269504f + kShift, whole = shifted - kShift;
  const float r = (bounded - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  // kShift's own bits fall off at the top
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  return p * std::bit_cast<float>((outside & negative) ? 0u : power);
}
inline double exponential(double x) {
  return std::exp(x);
}

}  // namespace veil
