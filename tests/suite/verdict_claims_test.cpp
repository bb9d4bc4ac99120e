// Random but consistent records of every suite: no sentence of a verdict may be false, and every
// option that it names must be one that the suite accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/command.h"
#include "report/changes.h"
#include "report/suite_page.h"
#include "suite/suite.h"
#include "suite/test_claims.h"
#include "suite/test_random_records.h"

namespace veil::verdict_claims_test {
namespace {

using ::testing::HasSubstr;
using verdict_claims::Chance;
using verdict_claims::random_records;

std::set<std::string> options_of(const std::string& suite) {
  static const std::vector<OptionTable> tables = option_tables();
  std::set<std::string> names;
  for (const OptionTable& table : tables) {
    if (table.command != "suite " + suite) continue;
    for (const OptionRow& row : table.rows) {
      names.insert(row.name);
      names.insert(row.aliases.begin(), row.aliases.end());
    }
  }
  return names;
}

const SuitePage& suite_page(const std::string& suite) {
  static const std::vector<SuitePage> pages = suite_pages();
  return *std::find_if(pages.begin(), pages.end(),
                       [&](const SuitePage& page) { return page.suite == suite; });
}

// False claims over so many random sets; the first few of them.
std::string false_claims_over(const std::string& suite, int sets) {
  const std::set<std::string> options = options_of(suite);
  EXPECT_GT(options.size(), 20u) << suite;
  std::string found;
  int wrong = 0;
  for (int seed = 0; seed < sets; ++seed) {
    Chance chance(static_cast<uint64_t>(seed));
    RecordFolder folder{"", random_records(chance, suite), {}};
    const std::string claims =
        verdict_claims::false_claims(suite, folder, judge(folder, suite_page(suite)), options);
    if (claims.empty()) continue;
    if (++wrong <= 3) found += suite + ", set " + std::to_string(seed) + ":\n" + claims;
  }
  return wrong == 0 ? "" : found + std::to_string(wrong) + " sets with false claims\n";
}

TEST(VerdictClaims, NothingFalseIsSaidOfThePriceOfPrivacy) {
  EXPECT_EQ(false_claims_over("llama3-dp", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfBottlenecksNorAdvisedAgainstThem) {
  EXPECT_EQ(false_claims_over("bottlenecks", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfStrategiesByBatches) {
  EXPECT_EQ(false_claims_over("zero", 2500), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfSetUpsByTheGeneralVerdict) {
  for (const char* suite : {"linear", "checkpointing"})
    EXPECT_EQ(false_claims_over(suite, 1000), "");
}
TEST(VerdictClaims, NothingFalseIsSaidOfDiffusionTransformersTheirGrowthAndTheirAttention) {
  EXPECT_EQ(false_claims_over("dit-dp", 2500), "");
}

TEST(VerdictClaims, NothingFalseIsSaidOfTwoRuns) {
  std::string found;
  for (int seed = 0; seed < 1000 && found.empty(); ++seed) {
    Chance chance(static_cast<uint64_t>(seed));
    RecordFolder before{"a", random_records(chance, "linear"), {}}, after = before;
    after.folder = "b";
    for (Record& r : after.records) {
      if (!r.ok()) continue;
      r.avg_time_ms = *r.avg_time_ms * chance.between(0.9, 1.1);
      if (r.modelled_step_ms) r.modelled_step_ms = *r.modelled_step_ms * chance.between(0.9, 1.1);
      if (chance.one_in(2)) r.peak_memory_bytes = std::round(chance.spread(1e6, 1e11));
      if (chance.one_in(8)) r.outcome = "error";
    }
    found = verdict_claims::false_change_claims(change_headline(changes_between(before, after)),
                                                before.records, after.records);
  }
  EXPECT_EQ(found, "");
}

// The checker itself: sentences that were once printed, or might be, and are not true.
TEST(VerdictClaims, TheCheckerFindsPlantedFalsehoods) {
  Chance chance(7);
  std::vector<Record> records;
  for (const auto& [mode, ms] : {std::pair("no_dp", 100.0), std::pair("auto", 102.4)}) {
    for (const int64_t length : {1024, 2048, 4096}) {
      Record r;
      r.mode = mode;
      r.outcome = "ok";
      r.label = std::string(mode) + ", T=" + std::to_string(length);
      r.seq_length = length;
      r.world = 1;
      r.device = "cuda";
      r.avg_time_ms = ms * static_cast<double>(length) * static_cast<double>(length) / 4096 / 4096;
      r.std_time_ms = 0.1;
      r.times_ms = {1, 2, 3};
      r.phases["norms"] = *r.avg_time_ms;
      r.peak_memory_bytes =
          (mode == std::string("auto") ? 4.0 : 3.6) * static_cast<double>(1 << 30);
      records.push_back(r);
    }
  }
  const RecordFolder folder{"", records, {}};
  const auto claims = [&](const std::string& suite, const std::string& headline,
                          const std::vector<std::string>& findings) {
    Verdict verdict;
    verdict.headline = headline;
    verdict.findings = findings;
    return verdict_claims::false_claims(suite, folder, verdict, options_of(suite));
  };
  const std::string good =
      "At T = 4096, private training takes 2.4% more time and 409.60 MiB more memory than plain "
      "training (auto).";
  EXPECT_EQ(claims("llama3-dp", good, {}), "");
  const std::vector<std::pair<std::string, std::string>> headlines = {
      {"At T = 4096, private training takes 2.5% more time and 409.60 MiB more memory than plain "
       "training (auto).",
       "the time"},
      {"At T = 2048, private training takes 2.4% more time and 409.60 MiB more memory than plain "
       "training (auto).",
       "a longer one was measured"},
      {"At T = 4096, private training takes 2.4% more time and 409.60 MiB less memory than plain "
       "training (auto).",
       "the memory"},
      {"Privacy is cheap.", "does not know"},
      {good + " It is well worth it.", "not one sentence"}};
  for (const auto& [headline, found] : headlines)
    EXPECT_THAT(claims("llama3-dp", headline, {}), HasSubstr(found)) << headline;
  const std::vector<std::pair<std::string, std::string>> findings = {
      {"Growth of auto: time grows linearly with T from 1024 to 4096: 1.00 ms plus 24.0 ms per "
       "1000 "
       "tokens, within 1.0%.",
       "farther from a point"},
      {"Growth of auto: time stays at 102 ms from T = 1024 to 4096, within 1.0%.", "it grows"},
      {"Growth of auto: time is 4.00 times as large at T = 4096 as at T = 1024 (3 lengths cannot "
       "tell the law).",
       "how many times"},
      {"auto: T = 4096 -2.4% less time and about the same memory compared with no_dp.",
       "the time"}};
  for (const auto& [finding, found] : findings)
    EXPECT_THAT(claims("llama3-dp", good, {finding}), HasSubstr(found)) << finding;
  const std::string bottleneck =
      "At T = 4096, the largest part of a step is norms in no_dp (100%), norms in auto (100%).";
  EXPECT_EQ(claims("bottlenecks", bottleneck, {}), "");
  const std::vector<std::pair<std::string, std::string>> advice = {
      {"`--mode auto` takes the cheaper rule", "auto is what runs"},
      {"`--rule flash` is cheaper", "no_dp refuses --rule"},
      {"`--strategy zero3` shares them among ranks", "zero3 does not help"},
      {"tokenize once", "text is encoded before"},
      {"`--tokenise` helps", "no option --tokenise"}};
  for (const auto& [words, found] : advice)
    EXPECT_THAT(claims("bottlenecks", bottleneck, {"Advice on time, auto: " + words + "."}),
                HasSubstr(found))
        << words;
  EXPECT_THAT(claims("zero", "Take ddp with batch 8 (12 k tokens/s in 3.00 GiB per rank).", {}),
              HasSubstr("no record of"));
}

TEST(VerdictClaims, TheCheckerFindsPlantedFalsehoodsOnDiffusionTransformers) {
  std::vector<Record> records;
  for (const char* mode : {"no_dp", "flash"}) {
    for (const char* attention : {"auto", "math"}) {
      for (const int64_t image : {128, 192, 256, 512}) {
        const auto tokens = static_cast<double>((image / 8) * (image / 8));
        const bool math = attention == std::string("math"), plain = mode == std::string("no_dp");
        Record r;
        r.mode = mode;
        r.outcome = "ok";
        r.label = std::string(plain ? "vanilla" : "flash_clip") + " img" + std::to_string(image) +
                  " " + attention + "-attention";
        r.config = {{"image-size", image}, {"attention", attention}};
        r.attention = math ? "math" : "flash";
        r.seq_length = (image / 8) * (image / 8);
        r.batch_size = 8;
        r.world = 1;
        r.device = "cuda";
        r.avg_time_ms = (plain ? 1.0 : 1.5) * tokens * (math ? 1.25 : 1);
        r.std_time_ms = 0.1;
        r.times_ms = {1, 2, 3};
        r.peak_memory_bytes = (math ? 2.0 : 1.0) * static_cast<double>(1 << 20) * tokens;
        records.push_back(r);
      }
    }
  }
  const RecordFolder folder{"", records, {}};
  const auto claims = [&](const std::string& finding) {
    Verdict verdict;
    verdict.headline = "Take flash_clip img512 auto-attention (6144 ms per step, 4.00 GiB).";
    if (!finding.empty()) verdict.findings = {finding};
    return verdict_claims::false_claims("dit-dp", folder, verdict, options_of("dit-dp"));
  };
  const std::vector<std::string> truths = {
      "",
      "Set-ups are compared at T = 4096, the largest images that a private experiment finished.",
      "Growth of flash_clip, flash attention: time grows in proportion to T from 256 to 4096: 1500 "
      "ms per 1000 tokens, within 0.0%.",
      "flash_clip, math attention: T = 4096 50% more time and about the same memory compared with "
      "vanilla.",
      "Flash attention in flash_clip: T = 4096 20% less time and 4.00 GiB less memory than math.",
      "Flash against math attention, 8 pairs: flash is faster in 8 and slower in 0, and needs less "
      "memory in 8 and more in 0. Take flash (--attention auto)."};
  for (const std::string& truth : truths) EXPECT_EQ(claims(truth), "") << truth;
  const std::vector<std::pair<std::string, std::string>> falsehoods = {
      {"Set-ups are compared at T = 1024, the largest images that a private experiment finished.",
       "another size"},
      {"Growth of flash_clip: time grows in proportion to T from 256 to 4096: 1500 ms per 1000 "
       "tokens, within 0.0%.",
       "a series of several"},
      {"Growth of flash_clip, math attention: time grows in proportion to T from 256 to 4096: 1500 "
       "ms per 1000 tokens, within 0.0%.",
       "farther from a point"},
      {"Growth of flash_clip, flash attention: time is 16.00 times as large at T = 4096 as at T = "
       "256 (3 lengths cannot tell the law).",
       "lengths"},
      {"flash_clip, math attention: T = 4096 88% more time and about the same memory compared with "
       "vanilla.",
       "the time"},
      {"Flash attention in flash_clip: T = 4096 25% less time and 4.00 GiB less memory than math.",
       "the time"},
      {"Flash attention in flash_clip: T = 4096 20% less time and 2.00 GiB less memory than math.",
       "the memory"},
      {"Flash against math attention, 8 pairs: flash is faster in 7 and slower in 0, and needs "
       "less memory in 8 and more in 0. Take flash (--attention auto).",
       "how many are faster"},
      {"Flash against math attention, 8 pairs: flash is faster in 8 and slower in 0, and needs "
       "less memory in 8 and more in 0. Take math (--attention math).",
       "math is not better"},
      {"Flash against math attention, 8 pairs: flash is faster in 8 and slower in 0, and needs "
       "less memory in 8 and more in 0. Neither is better throughout.",
       "one is better"},
      {"Two image sizes cannot tell how time and memory grow with the tokens: give --image-sizes "
       "four of them.",
       "how many sizes"},
      {"All experiments use flash attention: --attentions auto,math compares flash with math.",
       "uses math"},
      {"Beside vanilla img512 auto-attention, which protects nobody: flash_clip img512 "
       "math-attention 1.88 times the time, 2.00 times the memory.",
       "another attention"}};
  for (const auto& [words, found] : falsehoods)
    EXPECT_THAT(claims(words), HasSubstr(found)) << words;
}

}  // namespace
}  // namespace veil::verdict_claims_test
