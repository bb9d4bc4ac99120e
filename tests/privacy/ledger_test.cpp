// What a model's parameters have cost, event by event.
#include "privacy/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "privacy/test_mechanism.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;

LedgerEvent event(const MechanismRequest& wanted, const std::string& segment, int64_t first,
                  int64_t reached) {
  LedgerEvent result = ledger_event(make_mechanism(wanted), NoiseGenerator::secure, segment, first);
  result.reached = reached;
  return result;
}

double epsilon(const Ledger& ledger) {
  return ledger.spent(AccountantKind::rdp, 1e-5).epsilon;
}

TEST(PrivacyLedger, OneEventCostsWhatItsPlanSays) {
  for (const SamplerKind sampler : {SamplerKind::poisson, SamplerKind::shuffled}) {
    for (const int64_t steps : {0, 1, 9, 10, 11, 35}) {
      const Ledger ledger{{event(request(sampler), "a", 0, steps)}};
      EXPECT_EQ(epsilon(ledger), make_mechanism(request(sampler)).epsilon_after(steps).epsilon)
          << name_of(sampler) << " " << steps;
      EXPECT_EQ(ledger.steps(), steps);
    }
  }
}

TEST(PrivacyLedger, ARunCutIntoSegmentsCostsTheSameAsOneLeftAlone) {
  const Ledger whole{{event(request(), "a", 0, 50)}};
  const Ledger cut{{event(request(), "a", 0, 20), event(request(), "b", 20, 50)}};
  EXPECT_EQ(epsilon(cut), epsilon(whole));
}

TEST(PrivacyLedger, StepsThatACrashTookBackCountBesideThoseThatTakeTheirPlace) {
  // ten steps twice
  const Ledger lost{{event(request(), "a", 0, 30), event(request(), "b", 20, 50)}};
  const Ledger longer{{event(request(), "a", 0, 60)}};
  EXPECT_EQ(lost.steps(), 60);
  EXPECT_EQ(epsilon(lost), epsilon(longer));
}

MechanismRequest cut_request(int64_t most) {
  MechanismRequest wanted = request();
  wanted.maximum = {.most = most};
  return wanted;
}

TEST(PrivacyLedger, AnEventCarriesItsMaximumAndTheTailsOfEventsAddUp) {
  const Ledger both{{event(cut_request(170), "a", 0, 20), event(cut_request(165), "b", 20, 50)}};
  const Ledger plain{{event(request(), "a", 0, 20), event(request(), "b", 20, 50)}};
  const double tail = 20 * overflow_chance(1000, 0.1, 170) + 30 * overflow_chance(1000, 0.1, 165);
  const double spent = epsilon(both);
  EXPECT_GT(spent, epsilon(plain));
  const Ledger stored = ledger_from_json(ledger_json(both), "here");
  EXPECT_EQ(stored.events[0].max_batch, 170);
  EXPECT_EQ(epsilon(stored), spent);
  EXPECT_FALSE(ledger_json(plain)[0].contains("max_batch"));
  const nlohmann::json guarantee = guarantee_json(both, AccountantKind::rdp, 1e-5);
  EXPECT_EQ(guarantee["delta"].get<double>(), 1e-5) << "the whole of it";
  EXPECT_NEAR(guarantee["delta_of_cuts"].get<double>() / ((1 + std::exp(spent)) * tail), 1, 1e-9);
  EXPECT_FALSE(guarantee_json(plain, AccountantKind::rdp, 1e-5).contains("delta_of_cuts"));
  EXPECT_THAT(guarantee_line(both, AccountantKind::rdp, 1e-5), HasSubstr("draws that are cut"));
}

TEST(PrivacyLedger, AnEpochOfShuffledBatchesThatTwoSegmentsShareCountsForBoth) {
  const MechanismRequest wanted = request(SamplerKind::shuffled);  // ten steps per epoch
  EXPECT_EQ(event(wanted, "a", 0, 10).phase().steps, 1);
  EXPECT_EQ(event(wanted, "a", 10, 20).phase().steps, 1);
  EXPECT_EQ(event(wanted, "a", 5, 10).phase().steps, 1);
  EXPECT_EQ(event(wanted, "a", 5, 11).phase().steps, 2);
  EXPECT_EQ(event(wanted, "a", 5, 5).phase().steps, 0);
  EXPECT_EQ(event(wanted, "a", 0, 5).phase().q, 1);
}

TEST(PrivacyLedger, TheSamplersRateAndNoiseOfEachEventCount) {
  MechanismRequest louder = request();
  louder.sigma = 4;
  louder.expected_batch = 50;
  const Ledger mixed{{event(request(), "a", 0, 20), event(louder, "b", 20, 50)}};
  EXPECT_EQ(
      epsilon(mixed),
      make_accountant(AccountantKind::rdp)->epsilon({{2, 0.1, 20}, {4, 0.05, 30}}, 1e-5).epsilon);
}

TEST(PrivacyLedger, SurvivesBeingWrittenDown) {
  MechanismRequest shuffled = request(SamplerKind::shuffled);
  shuffled.unit = PrivacyUnit::document;
  shuffled.one_sequence_a_document = true;
  shuffled.size_from_data = true;
  Ledger ledger{{event(request(), "a", 0, 30), event(shuffled, "b", 20, 50)}};
  ledger.events[1].generator = NoiseGenerator::philox;
  ledger.events[1].sigma = 0.1 + 0.2;  // not a short number
  const nlohmann::json written = ledger_json(ledger);
  const Ledger back = ledger_from_json(nlohmann::json::parse(written.dump()), "here");
  EXPECT_EQ(ledger_json(back), written);
  EXPECT_EQ(epsilon(back), epsilon(ledger));
  EXPECT_EQ(back.events[1].phase().steps, ledger.events[1].phase().steps);
}

TEST(PrivacyLedger, WhatIsNoneIsRefusedByName) {
  nlohmann::json good = ledger_json({{event(request(), "a", 0, 30)}});
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"sigma", "two"},
                                                           {"sigma", -1},
                                                           {"q", 1.5},
                                                           {"sampler", "dice"},
                                                           {"last_step", -5},
                                                           {"first_step", -5},
                                                           {"first_step", INT64_MIN},
                                                           {"last_step", INT64_MAX},
                                                           {"last_step", UINT64_MAX},
                                                           {"last_step", 1e300},
                                                           {"last_step", 30.5},
                                                           {"data_size", INT64_MAX},
                                                           {"data_size", 1e300},
                                                           {"max_batch", INT64_MAX},
                                                           {"audit_canaries", -1},
                                                           {"steps_per_epoch", INT64_MAX}}) {
    nlohmann::json wrong = good;
    wrong[0][key] = value;
    try {
      ledger_from_json(wrong, "file.json");
      ADD_FAILURE() << key << " " << value;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("file.json: not a ledger"));
    }
  }
  good[0].erase("segment");
  EXPECT_THROW(ledger_from_json(good, "file.json"), UserError);
}

TEST(PrivacyLedger, StepsThatCannotBeAddedAreRefused) {
  nlohmann::json events = ledger_json({{event(request(), "a", 0, 30)}});
  events[0]["last_step"] = int64_t{1} << 53;
  EXPECT_EQ(ledger_from_json(events, "file.json").steps(), int64_t{1} << 53);
  events.push_back(ledger_json({{event(request(), "b", 0, 1)}})[0]);
  EXPECT_THROW(ledger_from_json(events, "file.json"), UserError);
}

// Merged with an earlier ledger that has the first event alone, the second one, of less noise, would
// be counted with the first one's.
TEST(PrivacyLedger, TwoEventsOfOneSegmentAreRefused) {
  nlohmann::json events = ledger_json({{event(request(), "a", 0, 30)}});
  events.push_back(events[0]);
  EXPECT_THROW(ledger_from_json(events, "here"), UserError);
  events[1]["segment"] = "another";
  EXPECT_EQ(ledger_from_json(events, "here").events.size(), 2u);
}

TEST(PrivacyLedger, MergingKeepsEveryEventOnceAndTheFurtherReach) {
  const Ledger one{{event(request(), "a", 0, 30), event(request(), "b", 20, 50)}};
  const Ledger other{{event(request(), "a", 0, 40), event(request(), "c", 30, 35)}};
  const Ledger both = merged(one, other);
  ASSERT_EQ(both.events.size(), 3u);
  EXPECT_EQ(both.events[0].reached, 40);
  EXPECT_EQ(both.events[1].reached, 50);
  EXPECT_EQ(both.events[2].segment, "c");
  EXPECT_EQ(both.steps(), merged(other, one).steps());
}

TEST(PrivacyLedger, OneSegmentHasOneMechanism) {
  const Ledger one{{event(request(), "a", 0, 30)}};
  Ledger other = one;
  other.events[0].reached = 20;
  EXPECT_EQ(merged(one, other).steps(), 30);
  other.events[0].sigma *= 50;
  EXPECT_THROW(merged(one, other), UserError);
  other = one;
  other.events[0].q /= 2;
  EXPECT_THROW(merged(one, other), UserError);
}

TEST(PrivacyLedger, TheReachWithinABudgetIsTheLastStepThatFits) {
  const Ledger ledger{{event(request(), "a", 0, 20), event(request(), "b", 20, 20)}};
  const auto at = [&](int64_t step) {
    return make_mechanism(request()).epsilon_after(step).epsilon;
  };
  EXPECT_EQ(ledger.reach_within(at(37), AccountantKind::rdp, 1e-5, 1000), 37);
  EXPECT_EQ(ledger.reach_within(at(37) - 1e-9, AccountantKind::rdp, 1e-5, 1000), 36);
  EXPECT_EQ(ledger.reach_within(at(37), AccountantKind::rdp, 1e-5, 30), 30);
  EXPECT_EQ(ledger.reach_within(at(10), AccountantKind::rdp, 1e-5, 1000), 20)
      << "nothing more fits";
}

TEST(PrivacyLedger, OneModelHasOneUnitAndOneSampler) {
  const Ledger ledger{{event(request(), "a", 0, 20)}};
  EXPECT_NO_THROW(ledger.check_follows(event(request(), "b", 20, 20)));
  EXPECT_THROW(ledger.check_follows(event(request(SamplerKind::shuffled), "b", 20, 20)), UserError);
  MechanismRequest document = request();
  document.unit = PrivacyUnit::document;
  document.one_sequence_a_document = true;
  EXPECT_THROW(ledger.check_follows(event(document, "b", 20, 20)), UserError);
}

TEST(PrivacyLedger, TheGuaranteeNamesAllThatItDependsOn) {
  const Ledger ledger{{event(request(), "a", 0, 20)}};
  const nlohmann::json guarantee = guarantee_json(ledger, AccountantKind::rdp, 1e-5);
  EXPECT_EQ(guarantee["epsilon"].get<double>(), epsilon(ledger));
  EXPECT_EQ(guarantee["delta"].get<double>(), 1e-5);
  for (const char* key : {"accountant", "unit", "relation", "sampler", "events", "covers"})
    EXPECT_TRUE(guarantee.contains(key)) << key;
  const std::string line = guarantee_line(ledger, AccountantKind::rdp, 1e-5);
  for (const char* word :
       {"epsilon", "delta 1e-05", "sample", "add-remove", "poisson", "20 steps", "rdp"})
    EXPECT_THAT(line, HasSubstr(word));
  MechanismRequest bare = request();
  bare.sigma = 0;
  const Ledger open{{event(bare, "a", 0, 20)}};
  EXPECT_EQ(guarantee_json(open, AccountantKind::rdp, 1e-5)["epsilon"].get<std::string>(), "inf");
  EXPECT_THAT(guarantee_line(open, AccountantKind::rdp, 1e-5), HasSubstr("not private"));
}

TEST(SpentCurve, NeverShowsLessThanIsSpentAndEndsExactly) {
  const Ledger ledger{{event(request(), "a", 0, 12), event(request(), "b", 12, 12)}};
  SpentCurve curve(ledger, AccountantKind::rdp, 1e-5, 400);
  double before = 0;
  for (int64_t step = 13; step <= 400; ++step) {
    const double shown = curve.at(step),
                 exact = make_mechanism(request()).epsilon_after(step).epsilon;
    EXPECT_GE(shown, exact) << step;
    EXPECT_LE(shown, make_mechanism(request()).epsilon_after(step + 8).epsilon) << step;
    EXPECT_GE(shown, before);
    before = shown;
  }
  EXPECT_EQ(curve.at(400), make_mechanism(request()).epsilon_after(400).epsilon);
  SpentCurve few(ledger, AccountantKind::rdp, 1e-5, 20);
  EXPECT_EQ(few.at(15), make_mechanism(request()).epsilon_after(15).epsilon);
}

TEST(SpentCurve, WhatWasCountedBeforeStaysCountedWhileItIsReplayed) {
  const Ledger ledger{{event(request(), "a", 0, 30)}};
  SpentCurve curve(ledger, AccountantKind::rdp, 1e-5, 40);
  EXPECT_EQ(curve.at(25), make_mechanism(request()).epsilon_after(30).epsilon);
  EXPECT_EQ(curve.at(40), make_mechanism(request()).epsilon_after(40).epsilon);
}

}  // namespace
}  // namespace veil::privacy
