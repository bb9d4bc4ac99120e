#include "base/units.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace veil {

TEST(Units, BytesAreShownInTheLargestUnitOfWhichThereIsOne) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(64 * kMiB), "64.00 MiB");
  EXPECT_EQ(format_bytes(11 * kGiB + kGiB / 50), "11.02 GiB");
  EXPECT_EQ(format_bytes(-kGiB), "-1.00 GiB");
}

TEST(Units, MillisecondsKeepThreeDigits) {
  EXPECT_EQ(format_ms(1934.6), "1935 ms");
  EXPECT_EQ(format_ms(99.96), "100 ms");
  EXPECT_EQ(format_ms(14.84), "14.8 ms");
  EXPECT_EQ(format_ms(1.5), "1.50 ms");
  EXPECT_EQ(format_ms(0.1234), "0.123 ms");
}

TEST(Units, DurationsAndCountsReadWell) {
  EXPECT_EQ(format_duration(12.34), "12.3 s");
  EXPECT_EQ(format_duration(185), "3 min 05 s");
  EXPECT_EQ(format_duration(3725), "1 h 02 min");
  EXPECT_EQ(format_count(12), "12");
  EXPECT_EQ(format_count(16384), "16.4 k");
  EXPECT_EQ(format_count(1e8), "100 M");
  EXPECT_EQ(format_count(8.03e9), "8.03 G");
  EXPECT_EQ(format_count(999.7), "1 k");
  EXPECT_EQ(format_count(999600), "1 M");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Units, AnEpsilonIsNeverShownBelowWhatItIs) {
  EXPECT_EQ(format_epsilon(2.00325), "2.0033");
  EXPECT_EQ(format_epsilon(2.0033), "2.0033");
  EXPECT_EQ(format_epsilon(2.00330001), "2.0034");
  EXPECT_EQ(format_epsilon(7.99996), "8.0000");
  EXPECT_EQ(format_epsilon(0.012301), "0.0124");
  EXPECT_EQ(format_epsilon(0.0012341), "0.00124");
  EXPECT_EQ(format_epsilon(3.99999e-05), "4e-05");
  EXPECT_EQ(format_epsilon(0.0099001), "0.00991");
  EXPECT_EQ(format_epsilon(2.1013652716, 6), "2.101366");
  EXPECT_EQ(format_lower_epsilon(1.23459), "1.2345");
  EXPECT_EQ(format_lower_epsilon(1.2345), "1.2345");
  EXPECT_EQ(format_lower_epsilon(0), "0.0000");
  EXPECT_EQ(format_epsilon(0), "0.0000");
  EXPECT_EQ(format_epsilon(INFINITY), "inf");
  for (double epsilon = 1e-6; epsilon < 100; epsilon *= 1.01)
    EXPECT_GE(std::stod(format_epsilon(epsilon)), epsilon * (1 - 1e-12)) << epsilon;
}

TEST(Units, SizesAreReadInBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("64MiB"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("1.5 gib"), 3 * kGiB / 2);
  EXPECT_EQ(parse_bytes("2GB"), 2000000000);
  EXPECT_EQ(parse_bytes("0"), 0);
}

TEST(Units, AWrongSizeIsOneLineThatNamesTheOptionAndTheValue) {
  for (const char* wrong : {"", "MiB", "-1", "12 parsecs", "nan", "1e30GiB", "5Mi B x"}) {
    EXPECT_THROW(parse_bytes(wrong), UserError) << wrong;
  }
  try {
    parse_bytes("lots", "--memory-budget");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find("--memory-budget 'lots' is not"), 0u) << error.what();
  }
}

}  // namespace veil
