// Invariant 7 of docs/privacy.md: who is in a step is a secret draw of its own for each sample, the
// same for every world; padding fills up, empty draws happen.
#include "privacy/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "kernels/stream_key.h"

namespace veil::privacy {
namespace {

ChaChaKey key_of(uint8_t secret) {
  RunSecret bytes{};
  bytes[0] = secret;
  return derive_key(bytes, {}, KeyDomain::sampling);
}

// The definition, one block at a time by the standard's own function.
std::vector<int64_t> plain_draw(const ChaChaKey& key, int64_t step, int64_t data_size, double q) {
  std::vector<int64_t> drawn;
  for (int64_t sample = 0; sample < data_size; ++sample) {
    const ChaChaBlock block =
        chacha20(key, static_cast<uint32_t>(sample / 8), static_cast<uint32_t>(sample / 8 >> 32),
                 static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32));
    const uint64_t bits =
        uint64_t{block.word[sample % 8 * 2 + 1]} << 32 | block.word[sample % 8 * 2];
    if (static_cast<long double>(bits) < std::ldexp(static_cast<long double>(q), 64))
      drawn.push_back(sample);
  }
  return drawn;
}

TEST(Sampler, DrawsAreChaChasWordsBelowTheRate) {
  for (const int64_t size : {0, 1, 7, 8, 9, 63, 64, 65, 1000}) {
    for (const double q : {0.0, 1e-3, 0.3, 0.999, 1.0}) {
      for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{5} << 32})
        EXPECT_EQ(poisson_draw(key_of(1), step, size, q), plain_draw(key_of(1), step, size, q))
            << size << " " << q;
    }
  }
}

// 1000 samples, 4000 steps: each count is binomial; 1000 of them stay within five deviations, and
// their sum too.
TEST(SamplerLaw, EverySampleIsTakenAtTheRate) {
  for (const double q : {0.01, 0.37}) {
    const int64_t size = 1000, steps = 4000;
    std::vector<double> count(static_cast<size_t>(size));
    for (int64_t step = 0; step < steps; ++step) {
      for (const int64_t sample : poisson_draw(key_of(2), step, size, q))
        count[static_cast<size_t>(sample)] += 1;
    }
    const double mean = q * steps, deviation = std::sqrt(mean * (1 - q));
    double total = 0, spread = 0;
    for (const double c : count) {
      EXPECT_NEAR(c, mean, 5 * deviation);
      total += c;
      spread += (c - mean) * (c - mean) / (deviation * deviation);
    }
    EXPECT_NEAR(total, mean * size, 5 * deviation * std::sqrt(size));
    // chi-squared: neither clumped nor too even
    EXPECT_NEAR(spread, size, 5 * std::sqrt(2.0 * size));
  }
}

TEST(SamplerLaw, DrawnSizesSpreadAsABinomialDoes) {
  const int64_t size = 500, steps = 4000;
  const double q = 0.1, mean = q * size, variance = mean * (1 - q);
  double spread = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const double n = static_cast<double>(poisson_draw(key_of(3), step, size, q).size());
    spread += (n - mean) * (n - mean) / variance;
  }
  EXPECT_NEAR(spread, steps, 5 * std::sqrt(2.0 * steps));
}

// How many samples two steps, or two neighbours, have in common by chance alone.
TEST(SamplerLaw, StepsAndNeighboursAreIndependent) {
  const int64_t size = 200'000;
  const double q = 0.2, both = q * q, bound = 5 * std::sqrt(both * (1 - both) * size);
  const std::vector<int64_t> here = poisson_draw(key_of(4), 10, size, q);
  for (const int64_t other :
       {int64_t{11}, int64_t{12}, int64_t{9}, int64_t{10} + (int64_t{1} << 32)}) {
    const std::vector<int64_t> there = poisson_draw(key_of(4), other, size, q);
    std::vector<int64_t> common;
    std::set_intersection(here.begin(), here.end(), there.begin(), there.end(),
                          std::back_inserter(common));
    EXPECT_NEAR(static_cast<double>(common.size()), both * size, bound) << "step " << other;
  }
  for (const int64_t lag : {1, 2, 4, 8, 64}) {
    std::vector<int64_t> moved = here, common;
    for (int64_t& sample : moved) sample += lag;
    std::set_intersection(here.begin(), here.end(), moved.begin(), moved.end(),
                          std::back_inserter(common));
    EXPECT_NEAR(static_cast<double>(common.size()), both * size, 1.2 * bound) << "lag " << lag;
  }
}

TEST(Sampler, AnotherKeyGivesAnotherDraw) {
  EXPECT_NE(poisson_draw(key_of(5), 0, 1000, 0.5), poisson_draw(key_of(6), 0, 1000, 0.5));
}

// A sample's draw does not hang on how many others there are: (step, sample) alone decide.
TEST(Sampler, ALargerDataSetChangesNoEarlierDraw) {
  const std::vector<int64_t> small = poisson_draw(key_of(7), 3, 777, 0.2);
  std::vector<int64_t> large = poisson_draw(key_of(7), 3, 5000, 0.2);
  large.erase(std::lower_bound(large.begin(), large.end(), 777), large.end());
  EXPECT_EQ(small, large);
}

// A lower rate takes a part of what a higher one takes: the same bits are compared with another
// threshold, also below 2^-53.
TEST(Sampler, RatesAreThresholdsOfTheSameBits) {
  const std::vector<int64_t> more = poisson_draw(key_of(8), 0, 100'000, 0.01);
  const std::vector<int64_t> fewer = poisson_draw(key_of(8), 0, 100'000, 0.002);
  EXPECT_GT(fewer.size(), 100u);
  EXPECT_TRUE(std::includes(more.begin(), more.end(), fewer.begin(), fewer.end()));
  EXPECT_TRUE(poisson_draw(key_of(8), 0, 100'000, 1e-18).empty());
  EXPECT_EQ(poisson_draw(key_of(8), 0, 100'000, std::nextafter(1.0, 0.0)).size(), 100'000u);
}

TEST(SamplerLaw, EmptyDrawsComeAsOftenAsTheyShould) {
  const int64_t size = 30, steps = 20'000;
  const double q = 0.05, chance = std::pow(1 - q, size);  // 0.21
  double empty = 0;
  for (int64_t step = 0; step < steps; ++step)
    empty += poisson_draw(key_of(9), step, size, q).empty();
  EXPECT_NEAR(empty, chance * steps, 5 * std::sqrt(chance * (1 - chance) * steps));
}

TEST(Sampler, RanksShareADrawEvenlyAndTogetherTakeAllOfIt) {
  for (int64_t step = 0; step < 50; ++step) {
    const std::vector<int64_t> draw = poisson_draw(key_of(10), step, 60, 0.2);
    for (const int64_t world : {1, 2, 3, 4}) {
      for (const int64_t micro_batch : {1, 2, 5}) {
        std::vector<int64_t> all;
        int64_t fewest = 1 << 30, most = 0, micro_batches = -1;
        for (int64_t rank = 0; rank < world; ++rank) {
          const Deal deal = deal_out(draw, micro_batch, rank, world);
          ASSERT_EQ(static_cast<int64_t>(deal.samples.size()), deal.micro_batches * micro_batch);
          const auto padding = std::find(deal.samples.begin(), deal.samples.end(), data::kNoSample);
          ASSERT_TRUE(std::all_of(padding, deal.samples.end(),
                                  [](int64_t s) { return s == data::kNoSample; }));
          all.insert(all.end(), deal.samples.begin(), padding);
          fewest = std::min<int64_t>(fewest, padding - deal.samples.begin());
          most = std::max<int64_t>(most, padding - deal.samples.begin());
          if (micro_batches < 0) micro_batches = deal.micro_batches;
          ASSERT_EQ(deal.micro_batches, micro_batches)
              << "ranks disagree on how often the body runs";
        }
        EXPECT_LE(most - fewest, 1);
        EXPECT_EQ(micro_batches, (most + micro_batch - 1) / micro_batch)
            << "a micro-batch of nothing but padding on every rank";
        std::sort(all.begin(), all.end());
        // nothing twice, nothing left out
        EXPECT_EQ(all, draw) << "step " << step << " world " << world;
      }
    }
  }
}

TEST(Sampler, AnEmptyDrawHasNoMicroBatch) {
  for (int64_t rank = 0; rank < 3; ++rank) {
    const Deal deal = deal_out({}, 4, rank, 3);
    EXPECT_EQ(deal.micro_batches, 0);
    EXPECT_TRUE(deal.samples.empty());
  }
}

TEST(Sampler, FewerSamplesThanRanksLeavesSomeRanksWithPaddingOnly) {
  EXPECT_EQ(deal_out({7}, 2, 0, 3).samples, (std::vector<int64_t>{7, data::kNoSample}));
  EXPECT_EQ(deal_out({7}, 2, 2, 3).samples,
            (std::vector<int64_t>{data::kNoSample, data::kNoSample}));
}

TEST(PoissonOrder, AResumedRunTakesWhatTheFirstWouldHaveTaken) {
  PoissonOrder order(key_of(11), 200, 0.05, 4, 1, 2), resumed(key_of(11), 200, 0.05, 4, 1, 2);
  data::Position position;
  std::vector<std::vector<int64_t>> taken;
  for (int i = 0; i < 30; ++i) {
    taken.push_back(order.samples(position));
    EXPECT_EQ(position.step, i);
    position = *order.after(position);
  }
  for (const int64_t step : {29, 0, 17, 3})
    EXPECT_EQ(resumed.samples(data::position_from_json(data::position_json({0, step}))),
              taken[static_cast<size_t>(step)]);
}

TEST(PoissonOrder, RefusesWhatCannotBe) {
  EXPECT_THROW(PoissonOrder(key_of(1), 0, 0.1, 4), UserError);
  EXPECT_THROW(PoissonOrder(key_of(1), 10, 0, 4), UserError);
  EXPECT_THROW(PoissonOrder(key_of(1), 10, 1.1, 4), UserError);
  EXPECT_THROW(PoissonOrder(key_of(1), 10, std::nan(""), 4), UserError);
  EXPECT_THROW(PoissonOrder(key_of(1), 10, 0.1, 0), UserError);
  EXPECT_THROW(PoissonOrder(key_of(1), 10, 0.1, 4).samples({1, 0}), UserError);
}

}  // namespace
}  // namespace veil::privacy
