#include "report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "report/test_records.h"

namespace veil {
namespace {

using nlohmann::json;
using test::judge;
using ::testing::HasSubstr;
using ::testing::Not;

Verdict verdict_on(const std::vector<json>& records) {
  const test::Folder folder;
  folder.write_records(records);
  return judge(read_records(folder.path()));
}

json plain(const char* name, double ms, double spread, int64_t bytes) {
  return {{"experiment", name},
          {"outcome", "ok"},
          {"avg_time_ms", ms},
          {"std_time_ms", spread},
          {"peak_memory_bytes", bytes}};
}

TEST(Verdict, TheLinearSuiteAsksAndAnswersItsQuestion) {
  const Verdict verdict = verdict_on(test::linear_suite_records());
  EXPECT_EQ(verdict.question, "DDP or FSDP, and with which options, for my memory and my time?");
  EXPECT_THAT(verdict.headline,
              "Take performance-optimised FSDP (1938 ms per step, 8.75 GiB), or if memory is short "
              "memory-optimised FSDP (2684 ms per step, 7.75 GiB).");
  const std::string all = join(verdict.findings, "\n");
  EXPECT_THAT(all, HasSubstr("performance-optimised FSDP is not measurably slower than basic DDP"));
  EXPECT_THAT(all, HasSubstr("Sharding: performance-optimised FSDP takes"));
  EXPECT_THAT(verdict.choices,
              ::testing::ElementsAre(HasSubstr(
                  "Choose by the memory you have: from 8.75 GiB on performance-optimised")));
  EXPECT_THAT(all, HasSubstr("What fills the peak: gradients 45% of 17.75 GiB (basic DDP)"));
  EXPECT_THAT(all, HasSubstr("12.5 ms of 155 ms (basic DDP, 0.6% of its step)"));
  EXPECT_THAT(join(verdict.caveats, "\n"), HasSubstr("simulated world of 8"));
}

TEST(Verdict, ADifferenceWithinTheNoiseIsNoDifference) {
  const Verdict near = verdict_on({plain("a", 100, 5, 2000), plain("b", 103, 5, 1000)});
  EXPECT_THAT(near.headline, HasSubstr("Take b (103 ms per step"));
  EXPECT_THAT(near.findings[1], HasSubstr("within the steps' spread"));
  const Verdict far = verdict_on({plain("a", 100, 1, 2000), plain("b", 103, 1, 1000)});
  EXPECT_THAT(far.headline,
              HasSubstr("Take a (100 ms per step, 1.95 KiB), or if memory is short b"));
  EXPECT_THAT(far.findings[0], HasSubstr("more than the steps' spread"));
}

TEST(Verdict, WhatIsLevelWithTheBestIsNamedBesideIt) {
  const Verdict verdict =
      verdict_on({plain("a", 100, 5, 1000), plain("b", 101, 5, 999), plain("c", 102, 5, 1000)});
  EXPECT_THAT(verdict.headline, HasSubstr("Take b"));
  EXPECT_THAT(verdict.findings[0], HasSubstr("level with b: c"));
}

TEST(Verdict, OneThatIsBothFastestAndSmallestIsTaken) {
  EXPECT_THAT(verdict_on({plain("a", 100, 1, 1000), plain("b", 200, 1, 2000)}).headline,
              HasSubstr("Take a: it is the fastest"));
}

TEST(Verdict, OnlyEqualWorkIsCompared) {
  json small = plain("a", 100, 1, 1000), large = plain("b", 50, 1, 500);
  small["batch_size"] = 8;
  large["batch_size"] = 4;
  const Verdict verdict = verdict_on({small, large});
  const std::string all = join(verdict.findings, "\n");
  EXPECT_THAT(all, Not(HasSubstr("fastest")));
  EXPECT_THAT(all, HasSubstr("batch 8: a takes 100"));
  EXPECT_THAT(all, HasSubstr("batch 4: b takes 50"));
}

TEST(Verdict, ModelsAndImagesOfOtherSizesAreNotCompared) {
  for (const char* setting : {"model", "image-size", "patch-size"}) {
    json small = plain("a", 100, 1, 1000), large = plain("b", 50, 1, 500);
    const bool named = std::string(setting) == "model";
    small["config"] = {{setting, named ? json("dit-xl/8") : json(32)}};
    large["config"] = {{setting, named ? json("dit-l/8") : json(16)}};
    const Verdict verdict = verdict_on({small, large});
    const std::string all = join(verdict.findings, "\n");
    EXPECT_THAT(all, Not(HasSubstr("fastest")));
    EXPECT_THAT(all, HasSubstr(named ? "dit-xl/8: a takes 100"
                                     : std::string(setting) + " 32: a takes 100"));
  }
}

TEST(Verdict, OneTimedStepTellsNothingOfTheNoise) {
  json fast = plain("a", 100, 0, 2000), slow = plain("b", 200, 0, 1000);
  fast["times_ms"] = {100};
  slow["times_ms"] = {200};
  EXPECT_THAT(join(verdict_on({fast, slow}).findings, "\n"),
              HasSubstr("the noise of single steps is not known"));
}

TEST(Verdict, WhatDidNotFitOrFailedIsSaidAndNotCompared) {
  json oom = plain("big", 1, 1, 1), broken = plain("broken", 2, 1, 2);
  oom["outcome"] = "oom";
  broken["outcome"] = "error";
  broken["message"] = "rank 1 died";
  const Verdict verdict = verdict_on({plain("a", 100, 1, 1000), oom, broken});
  EXPECT_THAT(verdict.headline, HasSubstr("a"));
  EXPECT_THAT(verdict.headline, Not(HasSubstr("big")));
  EXPECT_THAT(verdict.caveats, ::testing::ElementsAre(HasSubstr("big did not fit"),
                                                      HasSubstr("broken failed: rank 1 died")));
  EXPECT_THAT(verdict_on({oom}).headline, HasSubstr("nothing to compare"));
}

TEST(Verdict, ChoicesHoldOnlyWhatNothingBeatsInBoth) {
  const test::Folder folder;
  folder.write_records(
      {plain("a", 100, 1, 3000), plain("b", 120, 1, 3500), plain("c", 150, 1, 1000)});
  const RecordFolder records = read_records(folder.path());
  const std::vector<Choice> front = choices(comparable_groups(records.records).front());
  ASSERT_EQ(front.size(), 2u);
  EXPECT_EQ(front[0].record->experiment, "a");
  EXPECT_EQ(front[1].record->experiment, "c");
}

// b is as fast as a, and c as b, but c is measurably slower than a.
TEST(Verdict, AChainOfSmallDifferencesDoesNotHideALargeOne) {
  const test::Folder folder;
  folder.write_records(
      {plain("a", 100, 5, 3000), plain("b", 105, 5, 2000), plain("c", 110, 5, 1000)});
  const RecordFolder records = read_records(folder.path());
  const std::vector<Choice> front = choices(comparable_groups(records.records).front());
  ASSERT_EQ(front.size(), 2u);
  EXPECT_EQ(front[0].record->experiment, "b");
  EXPECT_EQ(front[0].fastest->experiment, "a");
  EXPECT_EQ(front[1].record->experiment, "c");
}

TEST(Verdict, WhatOneRankAndACpuCannotShowIsSaid) {
  json sharded = plain("sharded", 100, 1, 1000), offloaded = plain("offloaded", 120, 1, 1000);
  for (json* record : {&sharded, &offloaded}) {
    (*record)["world"] = 1;
    (*record)["device"] = "cpu";
    (*record)["config"] = {{"strategy", "zero3"}, {"cpu-offload", false}};
  }
  offloaded["config"] = {{"strategy", "ddp"}, {"cpu-offload", true}};
  const std::string words = join(verdict_on({sharded, offloaded}).caveats, "\n");
  EXPECT_THAT(words, HasSubstr("One rank shards nothing: sharded held everything"));
  EXPECT_THAT(words, HasSubstr("host memory already: offloaded."));
  for (json* record : {&sharded, &offloaded}) {
    (*record)["world"] = 2;
    (*record)["device"] = "cuda";
  }
  const std::string none = join(verdict_on({sharded, offloaded}).caveats, "\n");
  EXPECT_THAT(none, Not(HasSubstr("shards nothing")));
  EXPECT_THAT(none, Not(HasSubstr("host memory already")));
}

TEST(Verdict, AHeadlineIsTheFirstThatHasAtMost25Words) {
  const std::string words25 = "a b c d e f g h i j k l m n o p q r s t u v w x y";
  EXPECT_EQ(short_headline({"", words25, "short"}).substr(0, 3), "A b");
  EXPECT_EQ(short_headline({words25 + " z", "short"}), "Short");
}

TEST(Verdict, AWorldThatIsOnlyPartlySimulatedIsNotComparedAcross) {
  std::vector<json> records = test::linear_suite_records();
  records[0]["simulated"] = false;
  EXPECT_EQ(verdict_on(records).headline.find("Take"), std::string::npos);
  EXPECT_THAT(join(verdict_on(records).findings, "\n"), HasSubstr("simulated world of 8"));
}

TEST(Verdict, RecordsOfOneTitleGetLabelsThatTellThemApart) {
  const test::Folder folder;
  json a = plain("a", 1, 1, 1), b = plain("b", 1, 1, 1), c = plain("c", 1, 1, 1);
  for (json* record : {&a, &b, &c}) (*record)["title"] = "flash";
  a["seq_length"] = 1024;
  b["seq_length"] = 2048;
  c["seq_length"] = 2048;
  folder.write_records({a, b, c});
  const RecordFolder records = read_records(folder.path());
  EXPECT_EQ(records.records[0].label, "flash, T=1024");
  EXPECT_EQ(records.records[1].label, "flash, T=2048, b_result.json");
}

}  // namespace
}  // namespace veil
