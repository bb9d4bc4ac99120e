// Invariants 1 and 8: the parts of a private run stand in one value and cannot disagree.
#include "privacy/mechanism.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "privacy/accountant.h"
#include "privacy/numerics.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;

MechanismRequest poisson_request() {
  MechanismRequest request;
  request.data_size = 60'000;
  request.expected_batch = 256;
  request.clip_norm = 2;
  request.sigma = 1.1;
  request.delta = 1e-5;
  return request;
}

MechanismRequest shuffled_request() {
  MechanismRequest request = poisson_request();
  request.sampler = SamplerKind::shuffled;
  request.sigma = 4;
  return request;
}

TEST(Mechanism, TheExpectedBatchIsTheRateTimesTheSize) {
  const Mechanism by_batch = make_mechanism(poisson_request());
  EXPECT_EQ(by_batch.expected_batch(), 256);
  EXPECT_DOUBLE_EQ(by_batch.q(), 256.0 / 60'000);
  MechanismRequest by_rate = poisson_request();
  by_rate.expected_batch = {};
  by_rate.q = 0.01;
  EXPECT_DOUBLE_EQ(make_mechanism(by_rate).expected_batch(), 600);
  by_rate.expected_batch = 600;
  EXPECT_NO_THROW(make_mechanism(by_rate));
}

MechanismRequest with_maximum(int64_t most, int64_t multiple = 1) {
  MechanismRequest request = poisson_request();
  request.maximum = {.most = most, .multiple = multiple};
  request.steps = 1000;
  return request;
}

// What was done counts as it was; the steps to come share the rest of the budget.
TEST(Mechanism, TheNoiseOfARunThatContinuesIsForWhatIsLeftOfItsBudget) {
  for (const SamplerKind sampler : {SamplerKind::poisson, SamplerKind::shuffled}) {
    const bool poisson = sampler == SamplerKind::poisson;
    MechanismRequest request = poisson ? poisson_request() : shuffled_request();
    request.accountant = AccountantKind::rdp;
    request.sigma.reset();
    request.steps = 600;  // two and a half epochs of 234 steps
    request.epsilon = 2;
    const double from_scratch = make_mechanism(request).sigma();
    // Quieter steps before it leave less: 300 of them, more than one epoch.
    const Phase before =
        poisson ? Phase{.sigma = 0.99 * from_scratch, .q = 256.0 / 60'000, .steps = 300}
                : Phase{.sigma = 0.99 * from_scratch, .q = 1, .steps = 2};
    request.done = {.steps = 300, .phases = {{sampler, before}}};
    const Mechanism mechanism = make_mechanism(request);
    EXPECT_GT(mechanism.sigma(), from_scratch);
    const auto spent = [&](double sigma) {
      const Phase rest = poisson
                             ? Phase{.sigma = sigma, .q = 256.0 / 60'000, .steps = 300}
                             : Phase{.sigma = sigma, .q = 1, .steps = 2};  // it is in the second
      return make_accountant(AccountantKind::rdp)->epsilon({before, rest}, 1e-5).epsilon;
    };
    EXPECT_LE(spent(mechanism.sigma()), 2);
    EXPECT_GT(spent(mechanism.sigma() * 0.999), 2);
    EXPECT_EQ(mechanism.epsilon_after(600).epsilon, spent(mechanism.sigma()));
    EXPECT_LT(mechanism.epsilon_after(300).epsilon, 2);
    request.epsilon = mechanism.epsilon_after(300).epsilon;
    EXPECT_THAT([&] { make_mechanism(request); },
                testing::ThrowsMessage<UserError>(HasSubstr("is spent after step 300")));
    // A sigma that is given stays, and the ledger says how far it goes.
    request.sigma = from_scratch;
    EXPECT_EQ(make_mechanism(request).sigma(), from_scratch);
  }
}

TEST(Mechanism, AChosenMaximumCostsAtMostAThousandthOfDeltaAndTheNextSmallerOneMore) {
  for (const bool budget : {false, true}) {
    MechanismRequest request = with_maximum(0, 32);
    if (budget) {
      request.sigma = {};
      request.epsilon = 3;
    }
    const Mechanism mechanism = make_mechanism(request);
    const double spent = mechanism.epsilon_after(1000).epsilon;
    EXPECT_EQ(mechanism.batch_maximum() % 32, 0);
    EXPECT_EQ(mechanism.expected_batch(), 256) << "E is q N whatever the maximum";
    EXPECT_LE(overflow_delta({mechanism.event(1000)}, spent), 1e-3 * request.delta);
    Phase smaller = mechanism.event(1000);
    smaller.overflow = overflow_chance(60'000, mechanism.q(), mechanism.batch_maximum() - 32);
    EXPECT_GT(overflow_delta({smaller}, spent), 1e-3 * request.delta);
    if (budget) {
      EXPECT_LE(spent, 3);
    }
  }
}

TEST(Mechanism, AMaximumThatCostsMoreThanATenthOfDeltaIsRefusedWithOneThatWouldDo) {
  std::string said;
  try {
    make_mechanism(with_maximum(300));
  } catch (const UserError& error) {
    said = error.what();
  }
  EXPECT_THAT(said, HasSubstr("max_batch 300: cutting draws to it adds"));
  const size_t at = said.find(" or more would do");
  ASSERT_NE(at, std::string::npos) << said;
  const int64_t enough = std::stoll(said.substr(said.rfind(' ', at - 1) + 1));
  EXPECT_NO_THROW(make_mechanism(with_maximum(enough)));
  EXPECT_THROW(make_mechanism(with_maximum(enough - 1)), UserError);
}

TEST(Mechanism, CutsArePartOfDeltaAndOfTheRecord) {
  const Mechanism plain = make_mechanism(poisson_request()),
                  cut = make_mechanism(with_maximum(360));
  EXPECT_EQ(plain.overflow(), 0);
  EXPECT_NEAR(cut.overflow() / overflow_chance(60'000, cut.q(), 360), 1, 1e-12);
  EXPECT_GT(cut.epsilon_after(1000).epsilon, plain.epsilon_after(1000).epsilon);
  EXPECT_EQ(cut.json()["batch_maximum"]["most"], 360);
  bool shown = false;
  for (const std::string& line : cut.summary())
    shown = shown || line.find("360 samples per step") != std::string::npos;
  EXPECT_TRUE(shown);
}

TEST(Mechanism, UsersAreAUnitOnlyWhereTheyAreDrawn) {
  MechanismRequest request = poisson_request();
  request.unit = PrivacyUnit::user;
  EXPECT_THROW(make_mechanism(request), UserError) << "samples are drawn";
  request.users_are_drawn = true;
  const Mechanism mechanism = make_mechanism(request);
  EXPECT_THAT(mechanism.summary()[1], HasSubstr("256 of 60000 users expected"));
  EXPECT_EQ(mechanism.json()["unit"], "user");
  request.sampler = SamplerKind::shuffled;
  EXPECT_THROW(make_mechanism(request), UserError);
}

TEST(Mechanism, RefusesWhatDoesNotGoTogether) {
  struct Case {
    const char* says;
    std::function<void(MechanismRequest&)> change;
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {"q times the samples", [](MechanismRequest& r) { r.q = 0.01; }},  // 256 is not 600
      {"data_size must be at least 1, got 0", [](MechanismRequest& r) { r.data_size = 0; }},
      {"neither q nor a batch", [](MechanismRequest& r) { r.expected_batch = {}; }},
      {"batch of 60001", [](MechanismRequest& r) { r.expected_batch = 60'001; }},
      {"batch of 0", [](MechanismRequest& r) { r.expected_batch = 0; }},
      {"q must be a sampling rate above 0, up to 1, got 1.5",
       [](MechanismRequest& r) { r.q = 1.5; }},
      {"q must be a sampling rate above 0, up to 1, got nan",
       [=](MechanismRequest& r) { r.q = nan; }},
      {"relation zero-out with the sampler poisson",
       [](MechanismRequest& r) { r.relation = Relation::zero_out; }},
      {"relation add-remove with the sampler shuffled",
       [](MechanismRequest& r) {
         r.sampler = SamplerKind::shuffled;
         r.relation = Relation::add_remove;
       }},
      {"a whole number",
       [](MechanismRequest& r) {
         r.sampler = SamplerKind::shuffled;
         r.expected_batch = 25.5;
       }},
      {"clip_norm must be positive, got 0", [](MechanismRequest& r) { r.clip_norm = 0; }},
      {"clip_norm must be positive, got inf", [=](MechanismRequest& r) { r.clip_norm = infinity; }},
      {"layer_norms for 2 layers with abadi",
       [](MechanismRequest& r) {
         r.layer_norms = {1, 1};
       }},
      {"layer_norms are missing", [](MechanismRequest& r) { r.clip = ClipFunction::per_layer; }},
      {"sqrt(sum of squares)",
       [](MechanismRequest& r) {
         r.clip = ClipFunction::per_layer;
         r.layer_norms = {1, 1};
       }},
      {"layer_norms must be positive, got -1",
       [](MechanismRequest& r) {
         r.clip = ClipFunction::per_layer;
         r.layer_norms = {1, -1};
       }},
      {"count_noise must be positive, got 0",
       [](MechanismRequest& r) { r.clip = ClipFunction::adaptive; }},
      {"more than sigma / 2",
       [](MechanismRequest& r) {
         r.clip = ClipFunction::adaptive;
         r.adaptive.count_deviation = 0.5;
       }},
      {"clip_quantile must be between 0 and 1, got 1",
       [](MechanismRequest& r) {
         r.clip = ClipFunction::adaptive;
         r.adaptive = {.quantile = 1, .rate = 0.2, .count_deviation = 10};
       }},
      {"slack must be from 0 to less than 1, got -0.1",
       [](MechanismRequest& r) { r.slack = -0.1; }},
      {"neither sigma nor epsilon", [](MechanismRequest& r) { r.sigma = {}; }},
      {"sigma must be 0 or more, got -1", [](MechanismRequest& r) { r.sigma = -1; }},
      {"sigma must be 0 or more, got nan", [=](MechanismRequest& r) { r.sigma = nan; }},
      {"without noise nothing is private",
       [](MechanismRequest& r) {
         r.sigma = 0;
         r.epsilon = 3;
         r.steps = 10;
       }},
      {"steps are missing: epsilon 3", [](MechanismRequest& r) { r.epsilon = 3; }},
      {"epsilon must be positive, got 0",
       [](MechanismRequest& r) {
         r.epsilon = 0;
         r.steps = 10;
       }},
      {"sigma 1.1 spends epsilon",
       [](MechanismRequest& r) {
         r.epsilon = 1;
         r.steps = 14'000;
       }},
      {"delta must be between 0 and 1, both excluded, got 0",
       [](MechanismRequest& r) { r.delta = 0; }},
      {"gdp is an approximation", [](MechanismRequest& r) { r.accountant = AccountantKind::gdp; }},
      {"privacy_unit document", [](MechanismRequest& r) { r.unit = PrivacyUnit::document; }},
  };
  for (const Case& wrong : cases) {
    MechanismRequest request = poisson_request();
    wrong.change(request);
    try {
      make_mechanism(request);
      ADD_FAILURE() << "taken: " << wrong.says;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong.says));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Mechanism, NoiseIsScaledToTheNormWithItsSlack) {
  MechanismRequest request = poisson_request();
  EXPECT_DOUBLE_EQ(make_mechanism(request).noise_deviation(), 2.2);
  request.slack = 0.01;
  EXPECT_DOUBLE_EQ(make_mechanism(request).noise_deviation(), 1.1 * 2 * 1.01);
  request.clip = ClipFunction::per_layer;
  request.clip_norm = 0;
  request.layer_norms = {3, 4};
  EXPECT_DOUBLE_EQ(make_mechanism(request).noise_deviation(), 1.1 * 5 * 1.01);
  request.sigma = 0;
  EXPECT_EQ(make_mechanism(request).noise_deviation(), 0);
}

TEST(Mechanism, AdaptiveClippingPaysForItsCount) {
  MechanismRequest request = poisson_request();
  request.clip = ClipFunction::adaptive;
  request.adaptive.count_deviation = 12.8;
  const Mechanism mechanism = make_mechanism(request);
  EXPECT_DOUBLE_EQ(mechanism.gradient_sigma(), adaptive_gradient_sigma(1.1, 12.8));
  EXPECT_GT(mechanism.noise_deviation(), 2.2);
  EXPECT_DOUBLE_EQ(mechanism.noise_deviation(0.5),
                   mechanism.noise_deviation() / 4);  // C has moved from 2
  EXPECT_EQ(mechanism.event(10).sigma, 1.1);          // both together cost what sigma does
}

TEST(Mechanism, EpsilonIsTheAccountantsForPoissonSteps) {
  const Mechanism mechanism = make_mechanism(poisson_request());
  const Phase phase{.sigma = 1.1, .q = 256.0 / 60'000, .steps = 1000};
  EXPECT_EQ(mechanism.epsilon_after(1000).epsilon,
            make_accountant(AccountantKind::pld)->epsilon({phase}, 1e-5).epsilon);
  EXPECT_EQ(mechanism.epsilon_after(0).epsilon, 0);
}

// 60000 samples in batches of 256: 234 whole batches an epoch. An epoch that has begun counts.
TEST(Mechanism, ShuffledBatchesCostAPlainGaussianAnEpoch) {
  const Mechanism mechanism = make_mechanism(shuffled_request());
  EXPECT_EQ(mechanism.relation(), Relation::zero_out);
  EXPECT_EQ(mechanism.steps_per_epoch(), 234);
  const double one = gaussian_epsilon(1 / 4.0, 1e-5),
               two = gaussian_epsilon(std::sqrt(2.0) / 4, 1e-5);
  EXPECT_NEAR(mechanism.epsilon_after(1).epsilon, one, 1e-9);
  EXPECT_NEAR(mechanism.epsilon_after(234).epsilon, one, 1e-9);
  EXPECT_NEAR(mechanism.epsilon_after(235).epsilon, two, 1e-9);
  // The same noise claimed for Poisson sampling would look far better: the gap that the warning
  // names.
  MechanismRequest poisson = shuffled_request();
  poisson.sampler = SamplerKind::poisson;
  EXPECT_LT(make_mechanism(poisson).epsilon_after(234).epsilon, one / 15);
  ASSERT_FALSE(mechanism.warnings().empty());
  EXPECT_THAT(mechanism.warnings()[0], HasSubstr("does not hold"));
  EXPECT_TRUE(make_mechanism(poisson_request()).warnings().empty());
}

TEST(Mechanism, SigmaIsCalibratedFromEpsilon) {
  for (MechanismRequest request : {poisson_request(), shuffled_request()}) {
    request.sigma = {};
    request.epsilon = 3;
    request.steps = 500;
    request.accountant = AccountantKind::rdp;
    const Mechanism mechanism = make_mechanism(request);
    EXPECT_LE(mechanism.epsilon_after(500).epsilon, 3);
    MechanismRequest less = request;
    less.epsilon = {};
    less.sigma = mechanism.sigma() - 0.01;
    EXPECT_GT(make_mechanism(less).epsilon_after(500).epsilon, 3);
  }
}

TEST(Mechanism, StepsWithinABudgetAreTheMostThatFit) {
  for (const AccountantKind accountant : {AccountantKind::rdp, AccountantKind::pld}) {
    MechanismRequest request = poisson_request();
    request.accountant = accountant;
    const Mechanism mechanism = make_mechanism(request);
    const int64_t steps = mechanism.steps_within(1.5);
    EXPECT_GT(steps, 100);
    EXPECT_LE(mechanism.epsilon_after(steps).epsilon, 1.5);
    EXPECT_GT(mechanism.epsilon_after(steps + 1).epsilon, 1.5);
  }
  const Mechanism shuffled = make_mechanism(shuffled_request());
  const int64_t steps = shuffled.steps_within(3);
  EXPECT_EQ(steps % 234, 0);
  EXPECT_LE(shuffled.epsilon_after(steps).epsilon, 3);
  EXPECT_GT(shuffled.epsilon_after(steps + 1).epsilon, 3);
  EXPECT_EQ(shuffled.steps_within(0.01), 0);
  MechanismRequest open = poisson_request();
  open.sigma = 0;
  EXPECT_EQ(make_mechanism(open).steps_within(1000), 0);
}

TEST(Mechanism, RefusesADeltaThatAllowsToPublishASample) {
  MechanismRequest request = poisson_request();
  request.delta = 1.0 / 60'000;
  try {
    make_mechanism(request);
    FAIL() << "a delta of 1 / samples was taken";
  } catch (const UserError& error) {
    EXPECT_EQ(error.field(), "delta");
    EXPECT_THAT(error.what(), HasSubstr("less than 1 / 60000"));
  }
  request.delta = 0.99 / 60'000;
  EXPECT_TRUE(make_mechanism(request).warnings().empty());
}

TEST(Mechanism, DeclaresACountedSizePublic) {
  MechanismRequest request = poisson_request();
  request.size_from_data = true;
  const Mechanism mechanism = make_mechanism(request);
  EXPECT_THAT(mechanism.warnings(), testing::ElementsAre(HasSubstr("declared public")));
  EXPECT_EQ(mechanism.json().at("data_size_source").get<std::string>(), "counted, declared public");
}

TEST(Mechanism, ARecordSaysEverythingThatEpsilonRestsOn) {
  MechanismRequest request = poisson_request();
  request.slack = 0.5;
  request.epsilon = 3;
  request.steps = 100;
  request.unit = PrivacyUnit::document;
  request.one_sequence_a_document = true;
  const nlohmann::json json = make_mechanism(request).json();
  EXPECT_EQ(json.at("sampler").get<std::string>(), "poisson");
  EXPECT_EQ(json.at("relation").get<std::string>(), "add-remove");
  EXPECT_EQ(json.at("unit").get<std::string>(), "document");
  EXPECT_EQ(json.at("expected_batch").get<double>(), 256);
  EXPECT_DOUBLE_EQ(json.at("noise_deviation").get<double>(), 3.3);
  EXPECT_DOUBLE_EQ(json.at("sensitivity").get<double>(), 3);
  EXPECT_EQ(json.at("event").at("q").get<double>(), json.at("q").get<double>());
  EXPECT_EQ(json.at("target").at("steps").get<int64_t>(), 100);
  EXPECT_EQ(make_mechanism(shuffled_request()).json().at("event").at("q").get<double>(), 1);
  EXPECT_EQ(make_mechanism(shuffled_request()).json().at("event").at("every_steps").get<int64_t>(),
            234);
}

TEST(Mechanism, ASummaryIsShortLines) {
  const std::vector<std::string> lines = make_mechanism(shuffled_request()).summary();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "protects    a sample (zero-out neighbours), delta 1e-05");
  EXPECT_EQ(lines[1], "sampler     shuffled, 256 of 60000 samples, 234 steps per epoch");
  EXPECT_EQ(lines[2], "clipping    abadi, C 2");
  EXPECT_EQ(lines[3], "noise       sigma 4, deviation 8 on the sum");
  EXPECT_EQ(lines[4], "accounting  pld, a plain Gaussian per epoch");
  EXPECT_THAT(lines[5], HasSubstr("warning     Shuffled batches are no Poisson samples"));
  EXPECT_EQ(make_mechanism(poisson_request()).summary()[1],
            "sampler     poisson, q 0.00426667: 256 of 60000 samples expected");
}

}  // namespace
}  // namespace veil::privacy
