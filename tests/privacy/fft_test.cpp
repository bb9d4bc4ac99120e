#include <gtest/gtest.h>

#include <numbers>
#include <random>

#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

using Complex = std::complex<double>;

std::vector<Complex> random_values(size_t count) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Complex> result(count);
  for (Complex& value : result) value = {uniform(generator), uniform(generator)};
  return result;
}

TEST(Fft, ItIsTheSumOfItsDefinition) {
  for (const size_t count : {1, 2, 4, 8, 64}) {
    const std::vector<Complex> values = random_values(count);
    std::vector<Complex> transformed = values;
    fft(transformed);
    for (size_t k = 0; k < count; ++k) {
      Complex expected = 0;
      for (size_t j = 0; j < count; ++j)
        expected += values[j] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j * k) /
                                                    static_cast<double>(count));
      EXPECT_LT(std::abs(transformed[k] - expected), 1e-12) << count << " " << k;
    }
  }
}

TEST(Fft, TheInverseGivesBackLongInputsToTheLastDigits) {
  const std::vector<Complex> values = random_values(size_t{1} << 16);
  std::vector<Complex> there_and_back = values;
  fft(there_and_back);
  inverse_fft(there_and_back);
  double worst = 0;
  for (size_t i = 0; i < values.size(); ++i)
    worst = std::max(worst, std::abs(there_and_back[i] - values[i]));
  EXPECT_LT(worst, 3e-15);
}

TEST(Fft, OtherLengthsAreRefused) {
  std::vector<Complex> values(12);
  EXPECT_THROW(fft(values), std::logic_error);
}

}  // namespace
}  // namespace veil::privacy
