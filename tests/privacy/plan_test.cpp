// Invariants 1 and 8: the parts of a private run stand in one value and cannot disagree.
#include "privacy/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "privacy/calibrate.h"
#include "privacy/normal.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;

PlanRequest poisson_request() {
  PlanRequest request;
  request.data_size = 60'000;
  request.expected_batch = 256;
  request.clip_norm = 2;
  request.sigma = 1.1;
  request.delta = 1e-5;
  return request;
}

PlanRequest shuffled_request() {
  PlanRequest request = poisson_request();
  request.sampler = SamplerKind::shuffled;
  request.sigma = 4;
  return request;
}

TEST(PrivacyPlan, TheExpectedBatchIsTheRateTimesTheSize) {
  const PrivacyPlan by_batch = make_plan(poisson_request());
  EXPECT_EQ(by_batch.expected_batch(), 256);
  EXPECT_DOUBLE_EQ(by_batch.q(), 256.0 / 60'000);
  PlanRequest by_rate = poisson_request();
  by_rate.expected_batch = {};
  by_rate.q = 0.01;
  EXPECT_DOUBLE_EQ(make_plan(by_rate).expected_batch(), 600);
  by_rate.expected_batch = 600;
  EXPECT_NO_THROW(make_plan(by_rate));
}

TEST(PrivacyPlan, RefusesWhatDoesNotGoTogether) {
  struct Case {
    const char* says;
    std::function<void(PlanRequest&)> change;
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {"q times the samples", [](PlanRequest& r) { r.q = 0.01; }},  // 256 is not 600
      {"data-size 0", [](PlanRequest& r) { r.data_size = 0; }},
      {"neither q nor a batch", [](PlanRequest& r) { r.expected_batch = {}; }},
      {"batch of 60001", [](PlanRequest& r) { r.expected_batch = 60'001; }},
      {"batch of 0", [](PlanRequest& r) { r.expected_batch = 0; }},
      {"q 1.5", [](PlanRequest& r) { r.q = 1.5; }},
      {"q nan", [=](PlanRequest& r) { r.q = nan; }},
      {"relation zero-out with the sampler poisson", [](PlanRequest& r) { r.relation = Relation::zero_out; }},
      {"relation add-remove with the sampler shuffled",
       [](PlanRequest& r) {
         r.sampler = SamplerKind::shuffled;
         r.relation = Relation::add_remove;
       }},
      {"a whole number",
       [](PlanRequest& r) {
         r.sampler = SamplerKind::shuffled;
         r.expected_batch = 25.5;
       }},
      {"clip norm 0", [](PlanRequest& r) { r.clip_norm = 0; }},
      {"clip norm inf", [=](PlanRequest& r) { r.clip_norm = infinity; }},
      {"clip norms of 2 layers with abadi",
       [](PlanRequest& r) {
         r.layer_norms = {1, 1};
       }},
      {"without clip norms", [](PlanRequest& r) { r.clip = ClipFunction::per_layer; }},
      {"sqrt(sum of squares)",
       [](PlanRequest& r) {
         r.clip = ClipFunction::per_layer;
         r.layer_norms = {1, 1};
       }},
      {"a layer's clip norm of -1",
       [](PlanRequest& r) {
         r.clip = ClipFunction::per_layer;
         r.layer_norms = {1, -1};
       }},
      {"a count's noise of 0", [](PlanRequest& r) { r.clip = ClipFunction::adaptive; }},
      {"more than sigma / 2",
       [](PlanRequest& r) {
         r.clip = ClipFunction::adaptive;
         r.adaptive.count_deviation = 0.5;
       }},
      {"quantile 1",
       [](PlanRequest& r) {
         r.clip = ClipFunction::adaptive;
         r.adaptive = {.quantile = 1, .rate = 0.2, .count_deviation = 10};
       }},
      {"slack -0.1", [](PlanRequest& r) { r.slack = -0.1; }},
      {"neither sigma nor epsilon", [](PlanRequest& r) { r.sigma = {}; }},
      {"sigma -1", [](PlanRequest& r) { r.sigma = -1; }},
      {"sigma nan", [=](PlanRequest& r) { r.sigma = nan; }},
      {"without noise nothing is private",
       [](PlanRequest& r) {
         r.sigma = 0;
         r.epsilon = 3;
         r.steps = 10;
       }},
      {"without steps", [](PlanRequest& r) { r.epsilon = 3; }},
      {"epsilon 0",
       [](PlanRequest& r) {
         r.epsilon = 0;
         r.steps = 10;
       }},
      {"sigma 1.1 spends epsilon",
       [](PlanRequest& r) {
         r.epsilon = 1;
         r.steps = 14'000;
       }},
      {"delta 0", [](PlanRequest& r) { r.delta = 0; }},
      {"gdp is an approximation", [](PlanRequest& r) { r.accountant = AccountantKind::gdp; }},
      {"the unit document", [](PlanRequest& r) { r.unit = PrivacyUnit::document; }},
  };
  for (const Case& wrong : cases) {
    PlanRequest request = poisson_request();
    wrong.change(request);
    try {
      make_plan(request);
      ADD_FAILURE() << "taken: " << wrong.says;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(wrong.says));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(PrivacyPlan, NoiseIsScaledToTheNormWithItsSlack) {
  PlanRequest request = poisson_request();
  EXPECT_DOUBLE_EQ(make_plan(request).noise_deviation(), 2.2);
  request.slack = 0.01;
  EXPECT_DOUBLE_EQ(make_plan(request).noise_deviation(), 1.1 * 2 * 1.01);
  request.clip = ClipFunction::per_layer;
  request.clip_norm = 0;
  request.layer_norms = {3, 4};
  EXPECT_DOUBLE_EQ(make_plan(request).noise_deviation(), 1.1 * 5 * 1.01);
  request.sigma = 0;
  EXPECT_EQ(make_plan(request).noise_deviation(), 0);
}

TEST(PrivacyPlan, AdaptiveClippingPaysForItsCount) {
  PlanRequest request = poisson_request();
  request.clip = ClipFunction::adaptive;
  request.adaptive.count_deviation = 12.8;
  const PrivacyPlan plan = make_plan(request);
  EXPECT_DOUBLE_EQ(plan.gradient_sigma(), adaptive_gradient_sigma(1.1, 12.8));
  EXPECT_GT(plan.noise_deviation(), 2.2);
  EXPECT_DOUBLE_EQ(plan.noise_deviation(0.5), plan.noise_deviation() / 4);  // C has moved from 2
  EXPECT_EQ(plan.event(10).sigma, 1.1);                                     // both together cost what sigma does
}

TEST(PrivacyPlan, EpsilonIsTheAccountantsForPoissonSteps) {
  const PrivacyPlan plan = make_plan(poisson_request());
  const Phase phase{.sigma = 1.1, .q = 256.0 / 60'000, .steps = 1000};
  EXPECT_EQ(plan.epsilon_after(1000).epsilon, make_accountant(AccountantKind::pld)->epsilon({phase}, 1e-5).epsilon);
  EXPECT_EQ(plan.epsilon_after(0).epsilon, 0);
}

// 60000 samples in batches of 256: 234 whole batches an epoch. An epoch that has begun counts.
TEST(PrivacyPlan, ShuffledBatchesCostAPlainGaussianAnEpoch) {
  const PrivacyPlan plan = make_plan(shuffled_request());
  EXPECT_EQ(plan.relation(), Relation::zero_out);
  EXPECT_EQ(plan.steps_per_epoch(), 234);
  const double one = gaussian_epsilon(1 / 4.0, 1e-5), two = gaussian_epsilon(std::sqrt(2.0) / 4, 1e-5);
  EXPECT_NEAR(plan.epsilon_after(1).epsilon, one, 1e-9);
  EXPECT_NEAR(plan.epsilon_after(234).epsilon, one, 1e-9);
  EXPECT_NEAR(plan.epsilon_after(235).epsilon, two, 1e-9);
  // The same noise claimed for Poisson sampling would look far better: the gap that the warning names.
  PlanRequest poisson = shuffled_request();
  poisson.sampler = SamplerKind::poisson;
  EXPECT_LT(make_plan(poisson).epsilon_after(234).epsilon, one / 15);
  ASSERT_FALSE(plan.warnings().empty());
  EXPECT_THAT(plan.warnings()[0], HasSubstr("does not hold"));
  EXPECT_TRUE(make_plan(poisson_request()).warnings().empty());
}

TEST(PrivacyPlan, SigmaIsCalibratedFromEpsilon) {
  for (PlanRequest request : {poisson_request(), shuffled_request()}) {
    request.sigma = {};
    request.epsilon = 3;
    request.steps = 500;
    request.accountant = AccountantKind::rdp;
    const PrivacyPlan plan = make_plan(request);
    EXPECT_LE(plan.epsilon_after(500).epsilon, 3);
    PlanRequest less = request;
    less.epsilon = {};
    less.sigma = plan.sigma() - 0.01;
    EXPECT_GT(make_plan(less).epsilon_after(500).epsilon, 3);
  }
}

TEST(PrivacyPlan, StepsWithinABudgetAreTheMostThatFit) {
  for (const AccountantKind accountant : {AccountantKind::rdp, AccountantKind::pld}) {
    PlanRequest request = poisson_request();
    request.accountant = accountant;
    const PrivacyPlan plan = make_plan(request);
    const int64_t steps = plan.steps_within(1.5);
    EXPECT_GT(steps, 100);
    EXPECT_LE(plan.epsilon_after(steps).epsilon, 1.5);
    EXPECT_GT(plan.epsilon_after(steps + 1).epsilon, 1.5);
  }
  const PrivacyPlan shuffled = make_plan(shuffled_request());
  const int64_t steps = shuffled.steps_within(3);
  EXPECT_EQ(steps % 234, 0);
  EXPECT_LE(shuffled.epsilon_after(steps).epsilon, 3);
  EXPECT_GT(shuffled.epsilon_after(steps + 1).epsilon, 3);
  EXPECT_EQ(shuffled.steps_within(0.01), 0);
  PlanRequest open = poisson_request();
  open.sigma = 0;
  EXPECT_EQ(make_plan(open).steps_within(1000), 0);
}

TEST(PrivacyPlan, WarnsOfADeltaThatAllowsToPublishASample) {
  PlanRequest request = poisson_request();
  request.delta = 1.0 / 60'000;
  const std::vector<std::string> warnings = make_plan(request).warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("not below 1 / 60000"));
}

TEST(PrivacyPlan, DeclaresACountedSizePublic) {
  PlanRequest request = poisson_request();
  request.size_from_data = true;
  const PrivacyPlan plan = make_plan(request);
  EXPECT_THAT(plan.warnings(), testing::ElementsAre(HasSubstr("declared public")));
  EXPECT_EQ(plan.json().at("data_size_source").get<std::string>(), "counted, declared public");
}

TEST(PrivacyPlan, ARecordSaysEverythingThatEpsilonRestsOn) {
  PlanRequest request = poisson_request();
  request.slack = 0.5;
  request.epsilon = 3;
  request.steps = 100;
  request.unit = PrivacyUnit::document;
  request.one_sequence_a_document = true;
  const nlohmann::json json = make_plan(request).json();
  EXPECT_EQ(json.at("sampler").get<std::string>(), "poisson");
  EXPECT_EQ(json.at("relation").get<std::string>(), "add-remove");
  EXPECT_EQ(json.at("unit").get<std::string>(), "document");
  EXPECT_EQ(json.at("expected_batch").get<double>(), 256);
  EXPECT_DOUBLE_EQ(json.at("noise_deviation").get<double>(), 3.3);
  EXPECT_DOUBLE_EQ(json.at("sensitivity").get<double>(), 3);
  EXPECT_EQ(json.at("event").at("q").get<double>(), json.at("q").get<double>());
  EXPECT_EQ(json.at("target").at("steps").get<int64_t>(), 100);
  EXPECT_EQ(make_plan(shuffled_request()).json().at("event").at("q").get<double>(), 1);
  EXPECT_EQ(make_plan(shuffled_request()).json().at("event").at("every_steps").get<int64_t>(), 234);
}

TEST(PrivacyPlan, ASummaryIsShortLines) {
  const std::vector<std::string> lines = make_plan(shuffled_request()).summary();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "protects    a sample (zero-out neighbours), delta 1e-05");
  EXPECT_EQ(lines[1], "sampler     shuffled, 256 of 60000 samples, 234 steps an epoch");
  EXPECT_EQ(lines[2], "clipping    abadi, C 2");
  EXPECT_EQ(lines[3], "noise       sigma 4, deviation 8 on the sum");
  EXPECT_EQ(lines[4], "accounting  pld, a plain Gaussian an epoch");
  EXPECT_THAT(lines[5], HasSubstr("warning     Shuffled batches are no Poisson samples"));
  EXPECT_EQ(make_plan(poisson_request()).summary()[1],
            "sampler     poisson, q 0.00426667: 256 of 60000 samples expected");
}

}  // namespace
}  // namespace veil::privacy
