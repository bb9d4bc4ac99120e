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

// A draw of all 20 units is cut to 5: each unit stays with probability 1/4, each pair with 1/19.
// With a false alarm of 6e-7 per bound of five deviations, 210 bounds fail by chance once in 8000
// keys.
TEST(SamplerLaw, ACutLeavesAUniformlyRandomPart) {
  const int64_t units = 20, most = 5, steps = 6000;
  std::vector<double> kept(static_cast<size_t>(units));
  std::vector<double> pairs(static_cast<size_t>(units * units));
  for (int64_t step = 0; step < steps; ++step) {
    const std::vector<int64_t> all = poisson_draw(key_of(20), step, units, 1);
    const std::vector<int64_t> part = cut_draw(key_of(20), step, all, most);
    ASSERT_EQ(std::ssize(part), most);
    ASSERT_TRUE(std::is_sorted(part.begin(), part.end()));
    ASSERT_TRUE(std::includes(all.begin(), all.end(), part.begin(), part.end()));
    for (const int64_t a : part) {
      kept[static_cast<size_t>(a)] += 1;
      for (const int64_t b : part) pairs[static_cast<size_t>(a * units + b)] += 1;
    }
  }
  const auto expect = [&](double count, double chance) {
    EXPECT_NEAR(count, chance * steps, 5 * std::sqrt(chance * (1 - chance) * steps));
  };
  for (int64_t a = 0; a < units; ++a) {
    expect(kept[static_cast<size_t>(a)], 0.25);
    for (int64_t b = 0; b < a; ++b) expect(pairs[static_cast<size_t>(a * units + b)], 1.0 / 19);
  }
}

TEST(Sampler, ADrawThatIsNoLargerThanTheMaximumIsNotCut) {
  EXPECT_EQ(cut_draw(key_of(21), 4, {3, 8, 9}, 3), (std::vector<int64_t>{3, 8, 9}));
  EXPECT_EQ(cut_draw(key_of(21), 4, {}, 1), std::vector<int64_t>{});
}

// Who stays does not follow from who is drawn: the cut's bits are its own. Were its blocks those of
// the draw, unit u's would decide that unit 8 u is drawn, and u would stay whenever it is.
TEST(SamplerLaw, ACutIsIndependentOfTheDraw) {
  const int64_t units = 400, steps = 3000, most = 15;
  const double q = 0.05;
  for (const int64_t other : {0, 8}) {  // all units, and those u with 8 u in the draw
    double expected = 0, variance = 0, kept = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const std::vector<int64_t> draw = poisson_draw(key_of(22), step, units, q);
      if (std::ssize(draw) <= most) continue;
      const std::vector<int64_t> part = cut_draw(key_of(22), step, draw, most);
      for (int64_t unit = 1; unit < units / 8; ++unit) {
        if (!std::binary_search(draw.begin(), draw.end(), unit)) continue;
        if (other > 0 && !std::binary_search(draw.begin(), draw.end(), other * unit)) continue;
        const double chance = static_cast<double>(most) / static_cast<double>(std::ssize(draw));
        expected += chance;
        variance += chance * (1 - chance);
        kept += std::binary_search(part.begin(), part.end(), unit);
      }
    }
    // hits of one step exclude each other, so their sum varies less than this
    EXPECT_GT(expected, 150);
    EXPECT_NEAR(kept, expected, 5 * std::sqrt(variance)) << other;
  }
}

data::Owners owners_of(const std::vector<int64_t>& samples_of_users) {
  data::Owners owners;
  for (size_t user = 0; user < samples_of_users.size(); ++user) {
    for (int64_t i = 0; i < samples_of_users[user]; ++i) owners.add(std::to_string(user));
  }
  return owners;
}

std::shared_ptr<const data::Users> users_of(const std::vector<int64_t>& samples_of_users) {
  const data::Owners owners = owners_of(samples_of_users);
  std::vector<int64_t> items;
  for (int64_t item = 0; item < owners.items(); ++item) items.push_back(item);
  return std::make_shared<const data::Users>(owners, items);
}

// All ranks' samples of a step, without padding, in ascending order.
std::vector<int64_t> batch_of(const DrawOptions& options, int64_t units, double q, int64_t step,
                              int64_t world = 1, int64_t micro_batch = 3) {
  std::vector<int64_t> all;
  size_t rows = 0;
  for (int64_t rank = 0; rank < world; ++rank) {
    PoissonOrder order(key_of(23), units, q, micro_batch, rank, world, options);
    const std::vector<int64_t> mine = order.samples({0, step});
    if (rank > 0) {
      EXPECT_EQ(mine.size(), rows) << "ranks disagree on how often the body runs";
    }
    rows = mine.size();
    if (options.most > 0) {
      EXPECT_EQ(std::ssize(mine), micro_batches_for(options.most, micro_batch, world) * micro_batch)
          << "a step of another shape";
    }
    std::copy_if(mine.begin(), mine.end(), std::back_inserter(all),
                 [](int64_t sample) { return sample != data::kNoSample; });
  }
  std::sort(all.begin(), all.end());
  return all;
}

TEST(PoissonOrder, UnderAMaximumEveryStepHasTheSameShapeAndEveryWorldTheSameSamples) {
  const int64_t units = 60, most = 8;
  int64_t cut = 0, empty = 0;
  for (int64_t step = 0; step < 200; ++step) {
    for (const double q : {0.02, 0.12}) {
      const std::vector<int64_t> draw = poisson_draw(key_of(23), step, units, q);
      const std::vector<int64_t> expected = cut_draw(key_of(23), step, draw, most);
      cut += std::ssize(draw) > most;
      empty += draw.empty();
      for (const int64_t world : {1, 2, 3, 4}) {
        for (const int64_t micro_batch : {1, 3})
          EXPECT_EQ(batch_of({.most = most}, units, q, step, world, micro_batch), expected);
      }
    }
  }
  EXPECT_GT(cut, 20);
  EXPECT_GT(empty, 20) << "a step without samples has the same shape too";
}

TEST(PoissonOrder, EveryDrawnUserContributesOneOfTheirSamplesWhateverTheWorld) {
  const std::vector<int64_t> owned{1, 7, 2, 1, 30, 3, 1, 12, 5, 2};
  const auto users = users_of(owned);
  const data::Owners owners = owners_of(owned);
  for (int64_t step = 0; step < 300; ++step) {
    const std::vector<int64_t> drawn = poisson_draw(key_of(23), step, 10, 0.4);
    const std::vector<int64_t> alone = batch_of({.users = users}, 10, 0.4, step);
    std::vector<int64_t> contributed;
    for (const int64_t sample : alone) contributed.push_back(owners.user(sample));
    EXPECT_EQ(contributed, drawn);
    for (const int64_t world : {2, 3, 4})
      EXPECT_EQ(batch_of({.users = users}, 10, 0.4, step, world), alone);
  }
}

// A user with k samples shows each with probability q / k: counts of 5000 steps within five
// deviations.
TEST(SamplerLaw, AUsersSamplesComeEquallyOften) {
  const std::vector<int64_t> owned{1, 4, 13};
  const auto users = users_of(owned);
  const int64_t steps = 5000;
  const double q = 0.5;
  std::vector<double> count(18);
  for (int64_t step = 0; step < steps; ++step) {
    for (const int64_t sample : batch_of({.users = users}, 3, q, step))
      count[static_cast<size_t>(sample)] += 1;
  }
  size_t sample = 0;
  for (const int64_t of_user : owned) {
    const double chance = q / static_cast<double>(of_user);
    for (int64_t i = 0; i < of_user; ++i)
      EXPECT_NEAR(count[sample++], chance * steps, 5 * std::sqrt(chance * (1 - chance) * steps));
  }
}

// Neighbours: all samples of the last user are there or not, however many they are. Nobody else's
// contribution moves, and the batches differ by one sample at most.
TEST(PoissonOrder, NeighboursThatDifferInAUserDifferInOneSampleOfAStep) {
  for (const int64_t owned : {1, 2, 50, 1000}) {
    std::vector<int64_t> with{3, 1, 8, 2, 5, 5}, without = with;
    with.push_back(owned);
    int64_t differ = 0;
    for (int64_t step = 0; step < 200; ++step) {
      const std::vector<int64_t> here = batch_of({.users = users_of(with)}, 7, 0.3, step),
                                 there = batch_of({.users = users_of(without)}, 6, 0.3, step);
      ASSERT_TRUE(std::includes(here.begin(), here.end(), there.begin(), there.end()));
      ASSERT_LE(here.size() - there.size(), 1u);
      differ += here.size() != there.size();
    }
    // 200 steps at q = 0.3 within five deviations
    EXPECT_NEAR(static_cast<double>(differ), 60, 5 * std::sqrt(200 * 0.3 * 0.7)) << owned;
  }
}

// What one user owns decides nothing about the others: their draws are keyed by (step, user).
TEST(PoissonOrder, AUserWhoOwnsMoreChangesNobodyElsesContribution) {
  const std::vector<int64_t> few{4, 2, 6, 3}, many{4, 200, 6, 3};
  const data::Owners few_owners = owners_of(few), many_owners = owners_of(many);
  for (int64_t step = 0; step < 200; ++step) {
    std::vector<int64_t> here, there;
    for (const int64_t sample : batch_of({.users = users_of(few)}, 4, 0.6, step)) {
      if (few_owners.user(sample) != 1) here.push_back(sample < 4 ? sample : sample + 198);
    }
    for (const int64_t sample : batch_of({.users = users_of(many)}, 4, 0.6, step)) {
      if (many_owners.user(sample) != 1) there.push_back(sample);
    }
    EXPECT_EQ(here, there);
  }
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
