// Canaries of a training run: coins, guesses and the bound.
#include "run/run_canaries.h"

#include <gtest/gtest.h>

#include "train/test_number_feed.h"

namespace veil {
namespace {

ChaChaKey coin_key(uint32_t first) {
  ChaChaKey key;
  for (uint32_t i = 0; i < 8; ++i) key.word[i] = first + i;
  return key;
}

RunCanaries canaries_of(uint32_t key, int64_t count = 400) {
  Model model;
  model.input.classes = 50;
  return RunCanaries(NumberFeed(10), model, count, /*seed=*/3, coin_key(key));
}

TEST(RunCanaries, CoinsAreFairAndTheKeysOwn) {
  const RunCanaries one = canaries_of(1), again = canaries_of(1), other = canaries_of(2);
  EXPECT_EQ(one.coins(), again.coins());
  EXPECT_NE(one.coins(), other.coins());
  const auto heads = std::count(one.coins().begin(), one.coins().end(), true);
  EXPECT_NEAR(static_cast<double>(heads), 200, 5 * 10);  // five deviations
}

TEST(RunCanaries, TheNumberOfSamplesIsTheSameWhateverTheCoinsSay) {
  const auto samples = std::make_shared<NumberFeed>(10);
  EXPECT_EQ(canaries_of(1).within(samples)->count(), 410);
  EXPECT_EQ(canaries_of(2).within(samples)->count(), 410);
}

TEST(RunCanaries, LossesThatTellTheCoinsRefuteASmallEpsilon) {
  const RunCanaries canaries = canaries_of(1);
  std::vector<double> before(400, 5), told, silent;
  for (size_t i = 0; i < 400; ++i) {
    told.push_back(canaries.coins()[i] ? 4 : 5);
    silent.push_back(5 - static_cast<double>((i * 7919) % 400) / 400);  // in no order of the coins
  }
  const AuditRecord refuted = canaries.judged(before, told, /*epsilon=*/1, 1e-6);
  EXPECT_EQ(refuted.one_run->canaries, 400);
  // As many are guessed in as out; the coins fell a little otherwise.
  EXPECT_GE(refuted.one_run->correct,
            refuted.one_run->guesses - std::abs(refuted.one_run->included - 200));
  EXPECT_GT(refuted.epsilon_low, 3);
  EXPECT_EQ(refuted.verdict, "FAIL");
  // The same losses are fine for a run that claims little.
  EXPECT_EQ(canaries.judged(before, told, 10, 1e-6).verdict, "pass");
  // A true (0.01, 1e-6)-private run gets a bound above that with probability 0.05 at most; these
  // are fixed numbers.
  EXPECT_EQ(canaries.judged(before, silent, 0.5, 1e-6).verdict, "pass");
}

}  // namespace
}  // namespace veil
