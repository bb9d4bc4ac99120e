#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace veil {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  struct Vector {
    uint64_t key, low, high;
    uint32_t answer[4];
  };
  const Vector vectors[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {0x299f31d0a4093822,
       0x85a308d3243f6a88,
       0x0370734413198a2e,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Vector& vector : vectors) {
    const Philox4 made = philox4x32(vector.key, vector.low, vector.high);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(made.word[i], vector.answer[i]) << "key " << vector.key << " word " << i;
  }
}

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Over all 2^16 random values: how often the larger magnitude is chosen must be exactly what the
// mean asks for.
TEST(StochasticRounding, KeepsTheMeanExactly) {
  for (const float value : {1.0f, 1.001f, -1.001f, 0.1f, 3.3e38f, 1e-39f, -1e-45f, 0.0f}) {
    const uint32_t bits = bits_of(value);
    const auto below = static_cast<uint16_t>(bits >> 16);
    uint32_t above = 0;
    for (uint32_t random = 0; random < 65536; ++random) {
      const uint16_t rounded = round_to_bf16_stochastically(bits, random);
      ASSERT_TRUE(rounded == below || rounded == below + 1) << value << " random " << random;
      above += rounded != below;
    }
    EXPECT_EQ(above, bits & 0xFFFFu) << value;
  }
}

TEST(StochasticRounding, ReadsTheLowSixteenBitsOnly) {
  const uint32_t bits = bits_of(1.001f);
  for (const uint32_t random : {0u, 0x1234u, 0xFFFFu}) {
    EXPECT_EQ(round_to_bf16_stochastically(bits, random),
              round_to_bf16_stochastically(bits, random | 0xABCD0000u));
  }
}

TEST(StochasticRounding, InfinitiesAndNanPassAndTheLargestFiniteNumberStaysFinite) {
  for (const uint32_t random : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
    EXPECT_EQ(round_to_bf16_stochastically(0x7F800000u, random), 0x7F80u);
    EXPECT_EQ(round_to_bf16_stochastically(0xFF800000u, random), 0xFF80u);
    // A NaN whose payload lies in the lost bits would turn into infinity.
    for (const uint32_t nan : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu, 0xFF800001u}) {
      const uint16_t rounded = round_to_bf16_stochastically(nan, random);
      EXPECT_EQ(rounded & 0x7F80u, 0x7F80u) << nan;
      EXPECT_NE(rounded & 0x007Fu, 0u) << nan;
      EXPECT_EQ(rounded & 0x8000u, (nan >> 16) & 0x8000u) << "the sign of " << nan;
    }
    EXPECT_EQ(round_to_bf16_stochastically(0x7F7FFFFFu, random), 0x7F7Fu);  // FLT_MAX
    EXPECT_EQ(round_to_bf16_stochastically(0xFF7FFFFFu, random), 0xFF7Fu);
  }
}

}  // namespace
}  // namespace veil
