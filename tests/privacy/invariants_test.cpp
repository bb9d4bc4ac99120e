// Invariants of a private run while it runs: what leaves the plan stops it.
#include "privacy/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "privacy/test_mechanism.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;

template <typename Work>
std::string stopped_by(Work work) {
  try {
    work();
  } catch (const UserError& error) {
    EXPECT_EQ(error.exit_code(), kExitFailed);
    EXPECT_THAT(error.what(), HasSubstr("does not follow its privacy plan"));
    return error.what();
  }
  return "";
}

PrivateStep planned_step(const Mechanism& mechanism) {
  PrivateStep step;
  step.clip_norms = {mechanism.request().clip_norm};
  step.noise_multiplier = mechanism.noise_deviation(1);
  step.expected_batch = mechanism.expected_batch();
  return step;
}

TEST(Invariants, ASampleThatIsNotOfASumAndMovesItIsStopped) {
  EXPECT_EQ(stopped_by([] { expect_left_out({}); }), "");
  EXPECT_EQ(stopped_by([] { expect_left_out({0, 0, 0}); }), "");
  EXPECT_THAT(stopped_by([] { expect_left_out({0, 0.1}); }), HasSubstr("not of this sum"));
}

TEST(Invariants, AWeightOfAnotherRanksSampleThatIsNoneIsStopped) {
  EXPECT_EQ(stopped_by([] { expect_weights({0, 0.5, 1, 3}); }), "");
  for (const double bad :
       {-0.1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_THAT(stopped_by([&] { expect_weights({0.5, bad}); }), HasSubstr("weight"));
}

TEST(Invariants, AStepThatClipsNoisesOrDividesOtherwiseThanPlannedIsStopped) {
  MechanismRequest wanted = request();
  wanted.slack = 1e-5;
  wanted.clip_norm = 0.37;
  const Mechanism mechanism = make_mechanism(wanted);
  const PrivateStep good = planned_step(mechanism);
  EXPECT_EQ(stopped_by([&] { expect_planned(good, mechanism); }), "");
  PrivateStep bad = good;
  bad.noise_multiplier /= std::sqrt(2.0);
  EXPECT_THAT(stopped_by([&] { expect_planned(bad, mechanism); }), HasSubstr("noise's deviation"));
  bad = good;
  bad.noise_multiplier = mechanism.sigma();  // without the slack
  EXPECT_THAT(stopped_by([&] { expect_planned(bad, mechanism); }), HasSubstr("noise's deviation"));
  bad = good;
  bad.expected_batch += 1;
  EXPECT_THAT(stopped_by([&] { expect_planned(bad, mechanism); }), HasSubstr("expected batch"));
  bad = good;
  bad.clip_norms = {0.38};
  EXPECT_THAT(stopped_by([&] { expect_planned(bad, mechanism); }), HasSubstr("clip norm"));
  bad = good;
  bad.clip = ClipFunction::automatic;
  EXPECT_THAT(stopped_by([&] { expect_planned(bad, mechanism); }), HasSubstr("clip function"));
}

TEST(Invariants, AStepThatTheLedgerDoesNotCountIsStopped) {
  const Mechanism mechanism = make_mechanism(request());
  LedgerEvent event = ledger_event(mechanism, NoiseGenerator::secure, "a", 10);
  event.reached = 20;
  EXPECT_EQ(stopped_by([&] { expect_counted(event, mechanism, 11); }), "");
  EXPECT_EQ(stopped_by([&] { expect_counted(event, mechanism, 20); }), "");
  EXPECT_THAT(stopped_by([&] { expect_counted(event, mechanism, 21); }),
              HasSubstr("step 21 is not in the ledger, which counts steps 11 to 20"));
  EXPECT_NE(stopped_by([&] { expect_counted(event, mechanism, 10); }), "");
  LedgerEvent other = event;
  other.sigma = 9;
  EXPECT_THAT(stopped_by([&] { expect_counted(other, mechanism, 11); }), HasSubstr("sigma"));
  other = event;
  other.q *= 0.5;
  EXPECT_THAT(stopped_by([&] { expect_counted(other, mechanism, 11); }), HasSubstr("rate"));
  other = event;
  other.sampler = SamplerKind::shuffled;
  EXPECT_NE(stopped_by([&] { expect_counted(other, mechanism, 11); }), "");
}

TEST(Invariants, ADrawThatTheRateDoesNotMakeIsStopped) {
  const Mechanism poisson = make_mechanism(request());  // 100 of 1000
  for (const int64_t drawn : {60, 80, 100, 120, 150})
    EXPECT_EQ(stopped_by([&] { expect_drawn(poisson, 1000, drawn); }), "") << drawn;
  for (const int64_t drawn : {0, 10, 250, 1000, 1001})
    EXPECT_NE(stopped_by([&] { expect_drawn(poisson, 1000, drawn); }), "") << drawn;
  // An empty draw is none of them where it is likely.
  MechanismRequest small = request();
  small.expected_batch = 3;
  EXPECT_EQ(stopped_by([&] { expect_drawn(make_mechanism(small), 1000, 0); }), "");
  const Mechanism shuffled = make_mechanism(request(SamplerKind::shuffled));
  EXPECT_EQ(stopped_by([&] { expect_drawn(shuffled, 1000, 100); }), "");
  EXPECT_NE(stopped_by([&] { expect_drawn(shuffled, 1000, 101); }), "");
}

TEST(Invariants, ASampleThatMovesTheSumByMoreThanCIsStopped) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<int> layers = {0, 1, 1};
  const std::vector<double> norms = {1, 2};
  // [3 params, 2 samples]: norms of (3, 4) and (0.5, 1)
  const std::vector<double> squared = {9, 0.25, 8, 0.5, 8, 0.5};
  const auto stopped = [&](const std::vector<double>& all, const std::vector<double>& c) {
    return stopped_by([&] { expect_clipped({all.data(), c.data(), 3, 2, layers, norms}); });
  };
  EXPECT_EQ(stopped(squared, {1 / 3.0, 1, 0.5, 1}), "");
  EXPECT_EQ(stopped(squared, {0, 0, 0, 0}), "");
  EXPECT_THAT(stopped(squared, {1 / 2.9, 1, 0.5, 1}), HasSubstr("more than the clip norm, 1"));
  EXPECT_NE(stopped(squared, {1 / 3.0, 1, 0.5001, 1}), "");
  EXPECT_NE(stopped(squared, {1 / 3.0, 2.001, 0.5, 1}), "") << "the second sample's first layer";
  EXPECT_NE(stopped(squared, {-1 / 3.0, 1, 0.5, 1}), "");
  EXPECT_NE(stopped(squared, {std::nan(""), 1, 0.5, 1}), "");
  EXPECT_NE(stopped({infinite, 0.25, 8, 0.5, 8, 0.5}, {1 / 3.0, 1, 0.5, 1}), "");
  EXPECT_EQ(stopped({infinite, 0.25, 8, 0.5, 8, 0.5}, {0, 1, 0, 1}), "");
}

TEST(Invariants, NoiseThatIsMissingOrComesTwiceIsStopped) {
  EXPECT_EQ(stopped_by([] { expect_noised("block 3", 128, 128); }), "");
  EXPECT_THAT(stopped_by([] { expect_noised("block 3", 127, 128); }),
              HasSubstr("127 elements of block 3 got noise, and it has 128"));
  EXPECT_EQ(stopped_by([] { expect_one_update("head", 1); }), "");
  EXPECT_NE(stopped_by([] { expect_one_update("head", 0); }), "");
  EXPECT_THAT(stopped_by([] { expect_one_update("head", 2); }), HasSubstr("2 times in a step"));
}

}  // namespace
}  // namespace veil::privacy
