#include "models/stored_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace veil {
namespace {

template <typename To, typename From>
To converted(From value, StoredType from, StoredType to) {
  To result{};
  convert_elements(&value, from, &result, to, 1);
  return result;
}

uint16_t to_half(double value) {
  return converted<uint16_t>(value, StoredType::f64, StoredType::f16);
}
uint16_t to_bf16(double value) {
  return converted<uint16_t>(value, StoredType::f64, StoredType::bf16);
}
double from_half(uint16_t code) {
  return converted<double>(code, StoredType::f16, StoredType::f64);
}
double from_bf16(uint16_t code) {
  return converted<double>(code, StoredType::bf16, StoredType::f64);
}

TEST(StoredType, EveryCodeOfSixteenBitsComesBackFromTheNumberItStandsFor) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto short_code = static_cast<uint16_t>(code);
    const double half = from_half(short_code), brain = from_bf16(short_code);
    if (std::isnan(half)) {
      EXPECT_EQ(to_half(half) & 0x7E00, 0x7E00) << code;
    } else {
      EXPECT_EQ(to_half(half), short_code);
    }
    if (std::isnan(brain)) {
      EXPECT_EQ(to_bf16(brain) & 0x7FC0, 0x7FC0) << code;
    } else {
      EXPECT_EQ(to_bf16(brain), short_code);
      EXPECT_EQ(brain, std::bit_cast<float>(code << 16));
    }
  }
}

TEST(StoredType, KnownCodesStandForKnownNumbers) {
  EXPECT_EQ(from_half(0x3C00), 1.0);
  EXPECT_EQ(from_half(0xC000), -2.0);
  EXPECT_EQ(from_half(0x7BFF), 65504.0);
  EXPECT_EQ(from_half(0x0001), std::ldexp(1.0, -24));
  EXPECT_TRUE(std::isinf(from_half(0x7C00)));
  EXPECT_TRUE(std::signbit(from_half(0x8000)));
  EXPECT_EQ(to_half(65520.0), 0x7C00) << "half way to the next power rounds to infinity";
  EXPECT_EQ(to_half(65519.9), 0x7BFF);
  EXPECT_EQ(to_half(std::ldexp(1.0, -25)), 0x0000) << "a tie goes to even";
  EXPECT_EQ(to_half(std::ldexp(1.0, -25) * 1.0001), 0x0001);
  EXPECT_EQ(to_half(-std::ldexp(1.0, -26)), 0x8000);
  EXPECT_EQ(to_half(1e300), 0x7C00);
  EXPECT_EQ(to_half(1e-300), 0x0000);
}

// Neighbouring codes are neighbouring numbers, so rounding is right where each midpoint goes to the
// even code, and its neighbours to theirs.
TEST(StoredType, RoundingIsToTheNearestAndTiesGoToEven) {
  for (uint32_t code = 0; code < 0x7BFF; ++code) {
    const auto low = static_cast<uint16_t>(code), high = static_cast<uint16_t>(code + 1);
    const double middle = (from_half(low) + from_half(high)) / 2;
    EXPECT_EQ(to_half(middle), low & 1 ? high : low) << code;
    EXPECT_EQ(to_half(std::nextafter(middle, 0.0)), low) << code;
    EXPECT_EQ(to_half(std::nextafter(middle, 1e9)), high) << code;
  }
  for (uint32_t code = 0; code < 0x7F7F; ++code) {
    const auto low = static_cast<uint16_t>(code), high = static_cast<uint16_t>(code + 1);
    const double middle = (from_bf16(low) + from_bf16(high)) / 2;
    EXPECT_EQ(to_bf16(middle), low & 1 ? high : low) << code;
    EXPECT_EQ(to_bf16(std::nextafter(middle, 0.0)), low)
        << code << ": rounding twice, through fp32, would go wrong here";
    EXPECT_EQ(to_bf16(std::nextafter(middle, 1e300)), high) << code;
  }
}

TEST(StoredType, TheFastWaysAgreeWithTheSlowOne) {
  std::mt19937 random(7);
  std::vector<float> values = {0.0F,
                               -0.0F,
                               INFINITY,
                               -INFINITY,
                               NAN,
                               -NAN,
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::denorm_min(),
                               1.00390625F,
                               1.01171875F};
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (const float value : values) {
    const auto fast = converted<uint16_t>(value, StoredType::f32, StoredType::bf16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(from_bf16(fast)));
    } else {
      EXPECT_EQ(fast, to_bf16(static_cast<double>(value))) << value;
      EXPECT_EQ(converted<float>(fast, StoredType::bf16, StoredType::f32),
                static_cast<float>(from_bf16(fast)));
    }
  }
}

TEST(StoredType, UnalignedRangesAreConvertedWholeAndNothingBesideThem) {
  std::vector<char> from(1 + 3 * 4), to(1 + 3 * 2 + 1, 'x');
  const float values[] = {1.5F, -2.0F, 0.25F};
  std::memcpy(from.data() + 1, values, sizeof values);
  convert_elements(from.data() + 1, StoredType::f32, to.data() + 1, StoredType::f16, 3);
  uint16_t codes[3];
  std::memcpy(codes, to.data() + 1, sizeof codes);
  EXPECT_EQ(from_half(codes[0]), 1.5);
  EXPECT_EQ(from_half(codes[1]), -2.0);
  EXPECT_EQ(from_half(codes[2]), 0.25);
  EXPECT_EQ(to.front(), 'x');
  EXPECT_EQ(to.back(), 'x');
}

}  // namespace
}  // namespace veil
