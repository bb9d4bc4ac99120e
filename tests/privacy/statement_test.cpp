// A second private training never forgets the first.
#include "privacy/statement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_folder.h"
#include "privacy/test_mechanism.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr double kStatedDelta = 1e-5;
constexpr AccountantKind kStatedBy = AccountantKind::rdp;
const std::string kDocument = "document, one sequence of up to 64 tokens";

LedgerEvent stated_event(int64_t steps, SamplerKind sampler = SamplerKind::poisson,
                         PrivacyUnit unit = PrivacyUnit::document) {
  LedgerEvent event =
      ledger_event(make_mechanism(request(sampler)), NoiseGenerator::secure, "a", 0);
  event.unit = unit;
  event.reached = steps;
  return event;
}

Json stated(const LedgerEvent& event, const std::string& unit_is = kDocument,
            double delta = kStatedDelta) {
  Json json = guarantee_json({{event}}, kStatedBy, delta);
  json["unit_is"] = unit_is;
  return json;
}

Statement statement(const Json& json) {
  return statement_from_json(json, "privacy.json");
}

double rdp(const std::vector<Phase>& phases, double delta = kStatedDelta) {
  return make_accountant(kStatedBy)->epsilon(phases, delta).epsilon;
}

Together with_document(const Statement& base) {
  return together(base, PrivacyUnit::document, SamplerKind::poisson, kDocument);
}

TEST(PrivacyStatement, EventsOfOneUnitAndSamplerCompose) {
  const Statement base = statement(stated(stated_event(30)));
  const Together how = with_document(base);
  ASSERT_TRUE(how.one_figure()) << how.why_apart;
  const LedgerEvent own = stated_event(50);
  const Ledger ledger{{own}, how.phases};
  const double total = rdp({stated_event(30).phase(), own.phase()});
  EXPECT_EQ(ledger.spent(kStatedBy, kStatedDelta).epsilon, total);
  EXPECT_GT(total, rdp({own.phase()}));
  EXPECT_LT(total, rdp({own.phase()}) + rdp({stated_event(30).phase()})) << "composed, not added";
  EXPECT_EQ(ledger.steps(), 50) << "of this training";

  const Json json = with_base(guarantee_json(ledger, kStatedBy, kStatedDelta), base, how, kStatedBy,
                              kStatedDelta);
  EXPECT_EQ(json["epsilon"].get<double>(), total);
  EXPECT_EQ(json["base"], base.json);
  EXPECT_THAT(json["epsilon_covers"].get<std::string>(), HasSubstr("all before it"));
  EXPECT_FALSE(json.contains("WARNING"));
}

TEST(PrivacyStatement, ABaseOfABaseCountsToo) {
  const Statement first = statement(stated(stated_event(30)));
  Json second = stated(stated_event(20));
  second["base"] = first.json;
  const Statement base = statement(second);
  ASSERT_EQ(base.trainings.size(), 2u);
  const Ledger ledger{{stated_event(50)}, with_document(base).phases};
  EXPECT_EQ(ledger.spent(kStatedBy, kStatedDelta).epsilon,
            rdp({{.sigma = 2, .q = 0.1, .steps = 100}}));
  // and is read back from what is written
  const Json json = with_base(guarantee_json(ledger, kStatedBy, kStatedDelta), base,
                              with_document(base), kStatedBy, kStatedDelta);
  EXPECT_EQ(statement(json).trainings.size(), 3u);
}

// An adapter that was trained on another adapter's export, put on a model that its bases do not name.
TEST(PrivacyStatement, AModelCountsUnderAdaptersThatNameOtherBases) {
  const Statement model = statement(stated(stated_event(30)));
  Json second = stated(stated_event(20));
  second["base"] = stated(stated_event(7));
  const Statement adapter = statement(second), both = on_top_of(adapter, model);
  ASSERT_EQ(both.trainings.size(), 3u);
  EXPECT_EQ(both.trainings[0].ledger.events[0].reached, 30);
  EXPECT_EQ(both.trainings[1].ledger.events[0].reached, 7);
  EXPECT_EQ(both.trainings[2].ledger.events[0].reached, 20);
  EXPECT_EQ(both.json["base"]["base"], model.json);
  EXPECT_EQ(statement(both.json).trainings.size(), 3u) << "as it is written into an export";
  EXPECT_EQ(on_top_of(both, model).json, both.json) << "named already";
  EXPECT_EQ(on_top_of(statement(stated(stated_event(20))), model).trainings.size(), 2u);
}

TEST(PrivacyStatement, ABaseIsCountedAtTheTotalsDelta) {
  const Statement base = statement(stated(stated_event(30), kDocument, 1e-7));
  const Ledger ledger{{stated_event(50)}, with_document(base).phases};
  EXPECT_EQ(ledger.spent(kStatedBy, 1e-5).epsilon, rdp({{.sigma = 2, .q = 0.1, .steps = 80}}));
}

TEST(PrivacyStatement, WhereOnlySamplersDifferEpsilonsAndDeltasAddUp) {
  const Ledger ledger{{stated_event(50)},
                      {{SamplerKind::shuffled, {.sigma = 4, .q = 1, .steps = 2}}}};
  EXPECT_DOUBLE_EQ(ledger.spent(kStatedBy, kStatedDelta).epsilon,
                   rdp({{.sigma = 4, .q = 1, .steps = 2}}, kStatedDelta / 2) +
                       rdp({stated_event(50).phase()}, kStatedDelta / 2));
}

TEST(PrivacyStatement, OtherUnitsOrRelationsAreStatedApartAndNoFigureIsClaimed) {
  const std::string packed = "packed sequence of 64 tokens; a document spans up to 9";
  const Json shuffled = stated(stated_event(30, SamplerKind::shuffled)),
             sample = stated(stated_event(30, SamplerKind::poisson, PrivacyUnit::sample), packed);
  for (const auto& [json, why] :
       {std::pair{shuffled, "one has zero-out neighbours, the other add-remove"},
        {sample, "one protects a sample, the other a document"}}) {
    const Statement base = statement(json);
    const Together how = with_document(base);
    EXPECT_EQ(how.why_apart, why);
    EXPECT_TRUE(how.phases.empty());
    EXPECT_EQ(how.apart, std::vector<size_t>{0});
    const Ledger own{{stated_event(50)}};
    const Json said =
        with_base(guarantee_json(own, kStatedBy, kStatedDelta), base, how, kStatedBy, kStatedDelta);
    EXPECT_EQ(said.begin().key(), "WARNING") << "it stands first";
    EXPECT_THAT(said["WARNING"].get<std::string>(),
                HasSubstr("no single epsilon covers a person whose data is in both trainings"));
    EXPECT_TRUE(said["epsilon"].is_null()) << "the second alone is not the model's";
    ASSERT_EQ(said["figures"].size(), 2u);
    EXPECT_EQ(said["figures"][0]["epsilon"].get<double>(), rdp({own.events[0].phase()}));
    EXPECT_EQ(said["figures"][1]["epsilon"], json["epsilon"]);
    EXPECT_EQ(statement(said).trainings.size(), 2u);
    EXPECT_THAT(line_with_base("own", base, how, kStatedBy, kStatedDelta),
                HasSubstr("no single epsilon covers a person"));
  }
  // A sequence of another length is another unit; a document is the same however much is read.
  const auto samples = [&](const std::string& text) {
    return together(statement(sample), PrivacyUnit::sample, SamplerKind::poisson, text);
  };
  EXPECT_TRUE(samples("packed sequence of 64 tokens; a document spans up to 3").one_figure());
  EXPECT_FALSE(samples("packed sequence of 32 tokens; a document spans up to 9").one_figure());
  EXPECT_FALSE(samples("image").one_figure());
  EXPECT_TRUE(together(statement(stated(stated_event(30))), PrivacyUnit::document,
                       SamplerKind::poisson, "document, one sequence of up to 9 tokens")
                  .one_figure());
}

TEST(PrivacyStatement, OfAMixedChainEachUnitHasOneFigureForAllItsTrainings) {
  const std::string packed = "packed sequence of 64 tokens; a document spans up to 9";
  const auto sampled = [&](int64_t steps) {
    return stated(stated_event(steps, SamplerKind::poisson, PrivacyUnit::sample), packed);
  };
  Json chain = stated(stated_event(30));
  for (Json next : {sampled(20), sampled(10)}) {
    next["base"] = chain;
    chain = next;
  }
  const Statement base = statement(chain);
  const Together how = with_document(base);
  EXPECT_EQ(how.apart, (std::vector<size_t>{1, 2}));
  const Ledger own{{stated_event(50)}, how.phases};
  const Json said =
      with_base(guarantee_json(own, kStatedBy, kStatedDelta), base, how, kStatedBy, kStatedDelta);
  ASSERT_EQ(said["figures"].size(), 2u);
  EXPECT_EQ(said["figures"][0]["epsilon"].get<double>(), rdp({{.sigma = 2, .q = 0.1, .steps = 80}}))
      << "both trainings that protect documents";
  EXPECT_EQ(said["figures"][1]["epsilon"].get<double>(), rdp({{.sigma = 2, .q = 0.1, .steps = 30}}))
      << "both that protect sequences";
}

TEST(PrivacyStatement, APlainTrainingInBetweenLeavesNoFigure) {
  const Statement first = statement(stated(stated_event(30)));
  const Json plain = plain_statement(first);
  EXPECT_EQ(plain.begin().key(), "WARNING");
  EXPECT_TRUE(plain["epsilon"].is_null());
  const Statement base = statement(plain);
  ASSERT_EQ(base.trainings.size(), 2u);
  const Together how = with_document(base);
  EXPECT_EQ(how.why_apart, "an earlier training was not private");
  EXPECT_THAT(plain_warning(first), HasSubstr("has no guarantee"));
}

TEST(PrivacyStatement, NoiseThatIsNotCryptographicIsSaidFirstOfABaseToo) {
  LedgerEvent insecure = stated_event(30);
  insecure.generator = NoiseGenerator::philox;
  const Json own = guarantee_json({{insecure}}, kStatedBy, kStatedDelta);
  EXPECT_EQ(own.begin().key(), "WARNING");
  EXPECT_THAT(own["WARNING"].get<std::string>(), HasSubstr("the noise is not cryptographic"));
  EXPECT_THAT(guarantee_line({{insecure}}, kStatedBy, kStatedDelta),
              testing::StartsWith("the noise is not cryptographic"));
  const Statement base = statement(stated(insecure));
  const Together how = with_document(base);
  const Json later = with_base(guarantee_json({{stated_event(5)}, how.phases}, kStatedBy, 1e-5),
                               base, how, kStatedBy, kStatedDelta);
  EXPECT_THAT(later["WARNING"].get<std::string>(), HasSubstr("the noise is not cryptographic"));
  EXPECT_FALSE(guarantee_json({{stated_event(30)}}, kStatedBy, 1e-5).contains("WARNING"));
}

TEST(PrivacyStatement, ABudgetIsForTheBaseAndTheNewTraining) {
  MechanismRequest wanted = request();
  wanted.sigma.reset();
  wanted.steps = 50;
  wanted.epsilon = 2;
  const double alone = make_mechanism(wanted).sigma();
  wanted.base = {{SamplerKind::poisson, {.sigma = 2, .q = 0.1, .steps = 30}}};
  const Mechanism mechanism = make_mechanism(wanted);
  EXPECT_GT(mechanism.sigma(), alone);
  EXPECT_EQ(mechanism.epsilon_after(50).epsilon,
            rdp({{.sigma = 2, .q = 0.1, .steps = 30}, mechanism.event(50)}));
  EXPECT_LE(mechanism.epsilon_after(50).epsilon, 2);
  // Sigma is found to 1e-4, over which epsilon falls by less than 1e-3 of itself here.
  EXPECT_GT(mechanism.epsilon_after(50).epsilon, 2 * 0.999);
  EXPECT_EQ(mechanism.epsilon_after(0).epsilon, rdp({{.sigma = 2, .q = 0.1, .steps = 30}}));
  wanted.epsilon = 0.5 * mechanism.epsilon_after(0).epsilon;
  EXPECT_THAT(data::complaint([&] { make_mechanism(wanted); }),
              HasSubstr("the model's earlier training has spent"));
}

TEST(PrivacyStatement, AWarningNeedsNoFigures) {
  Json base = stated(stated_event(30));
  EXPECT_THAT(plain_warning(statement_from_json(base, "here")), HasSubstr("(epsilon"));
  for (const Json& value : {Json(), Json::object(), Json("x")}) {
    base["delta"] = value;
    EXPECT_THAT(plain_warning(statement_from_json(base, "here")),
                HasSubstr("trained privately before, and"));
  }
}

class StatementFile : public data::FolderTest {};

TEST_F(StatementFile, WhatIsDamagedIsOneLineAndNeverForgotten) {
  EXPECT_EQ(read_statement(folder_), std::nullopt);
  EXPECT_EQ(read_statement(""), std::nullopt);
  const Json good = stated(stated_event(30));
  write("privacy.json", good.dump());
  EXPECT_EQ(read_statement(folder_)->trainings.size(), 1u);
  const std::string text = good.dump();
  std::vector<std::string> damaged = {"", "{", "[]", "7", text.substr(0, text.size() / 2)};
  for (const char* key : {"schema", "events"}) {
    Json without = good;
    without.erase(key);
    damaged.push_back(without.dump());
  }
  for (const auto& [place, value] : {std::pair{"/schema", Json(2)},
                                     {"/schema", Json("1")},
                                     {"/schema", Json(1e300)},
                                     {"/events/0/last_step", Json(1e300)},
                                     {"/events", Json::array()},
                                     {"/events/0", Json(7)},
                                     {"/events/0/sigma", Json("2")},
                                     {"/events/0/q", Json(-1)},
                                     {"/events/0/last_step", Json(-5)},
                                     {"/events/0/unit", Json("people")},
                                     {"/private", Json(1)},
                                     {"/base", Json::object()},
                                     {"/unit_is", Json(3)}}) {
    Json other = good;
    other[Json::json_pointer(place)] = value;
    damaged.push_back(other.dump());
  }
  for (const std::string& content : damaged) {
    write("privacy.json", content);
    EXPECT_THAT(data::complaint([&] { read_statement(folder_); }),
                HasSubstr("privacy.json: the model's statement of privacy is damaged"))
        << content;
  }
}

}  // namespace
}  // namespace veil::privacy
