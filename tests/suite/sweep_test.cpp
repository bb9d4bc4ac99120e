#include "suite/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/clock.h"
#include "record/repeats.h"
#include "suite/child.h"
#include "suite/modes.h"

namespace veil::sweep_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::vector<std::string> names_of(const std::vector<Experiment>& plan,
                                  const std::vector<Turn>& turns) {
  std::vector<std::string> names;
  for (const Turn& turn : turns) names.push_back(plan[turn.experiment].name);
  return names;
}

TEST(Sweep, ModesOfOneLengthRunSideBySideAndEverySecondRepeatBackwards) {
  const auto plan =
      mode_experiments({.modes = {Mode::no_dp, Mode::flash}, .seq_lengths = {8, 16}}, {});
  EXPECT_THAT(names_of(plan, turns_of(plan, 1)),
              ::testing::ElementsAre("no_dp_seq8", "flash_seq8", "no_dp_seq16", "flash_seq16"));
  const auto twice = turns_of(plan, 2);
  ASSERT_EQ(twice.size(), 8u);
  EXPECT_EQ(plan[twice[4].experiment].name, "flash_seq16");
  EXPECT_EQ(plan[twice[7].experiment].name, "no_dp_seq8");
  EXPECT_EQ(twice[3].repeat, 0);
  EXPECT_EQ(twice[4].repeat, 1);
  // A mode's mean place in the sweep is that of every other one of its length: a drift that grows
  // evenly hits them alike.
  double place[4] = {};
  for (size_t i = 0; i < twice.size(); ++i) place[twice[i].experiment] += static_cast<double>(i);
  for (const double sum : place) EXPECT_EQ(sum, place[0]);
}

TEST(Sweep, RepeatsBecomeOneRecordWithAllTheirTimes) {
  const auto one = [](double ms, int64_t bytes) {
    return Json{{"outcome", "ok"},
                {"times_ms", {ms - 1, ms + 1}},
                {"avg_time_ms", ms},
                {"std_time_ms", 1},
                {"peak_memory_bytes", bytes},
                {"phases", {{"forward", {{"ms", ms / 2}}}}},
                {"mode", "flash"}};
  };
  const auto merge = [](const std::vector<Json>& measured) {
    std::vector<Record> records;
    for (const Json& found : measured) records.push_back(record_from_json(found));
    return to_json(merged_repeats(records));
  };
  const Json merged = merge({one(10, 5), one(20, 7)});
  EXPECT_EQ(merged["times_ms"], Json({9, 11, 19, 21}));
  EXPECT_DOUBLE_EQ(merged["avg_time_ms"].get<double>(), 15);
  EXPECT_NEAR(merged["std_time_ms"].get<double>(), 5.887841, 1e-5);
  EXPECT_DOUBLE_EQ(merged["phases"]["forward"]["ms"].get<double>(), 7.5);
  EXPECT_EQ(merged["peak_memory_bytes"].get<int64_t>(), 7);
  EXPECT_EQ(merged["repeats"].size(), 2u);
  EXPECT_EQ(merged["mode"].get<std::string>(), "flash");
  const Json failed = {{"outcome", "error"}, {"message", "it broke"}}, full = {{"outcome", "oom"}};
  EXPECT_EQ(merge({one(10, 5), full, failed})["message"].get<std::string>(), "it broke");
  EXPECT_EQ(merge({one(10, 5), full})["outcome"].get<std::string>(), "oom");
}

TEST(Sweep, AGpuIsWaitedForUntilItIsCoolIdleAndFreeAndTheRecordSaysWhatWasFound) {
  const GpuBounds bounds;
  std::vector<GpuState> states = {{.utilisation_percent = 0,
                                   .temperature_c = 84,
                                   .memory_free_bytes = 99,
                                   .memory_total_bytes = 100},
                                  {.utilisation_percent = 50,
                                   .temperature_c = 70,
                                   .memory_free_bytes = 99,
                                   .memory_total_bytes = 100},
                                  {.utilisation_percent = 0,
                                   .temperature_c = 70,
                                   .memory_free_bytes = 20,
                                   .memory_total_bytes = 100},
                                  {.utilisation_percent = 0,
                                   .temperature_c = 70,
                                   .memory_free_bytes = 99,
                                   .memory_total_bytes = 100,
                                   .held_down = true},
                                  {.utilisation_percent = 3,
                                   .temperature_c = 61,
                                   .memory_free_bytes = 99,
                                   .memory_total_bytes = 100}};
  for (size_t i = 0; i < states.size(); ++i)
    EXPECT_EQ(outside(bounds, states[i]).empty(), i == 4) << i;
  size_t now = 0;
  const Settling cooling{
      .state = [&](int gpu) { return gpu == 0 ? std::optional(states[now]) : std::nullopt; },
      .sleep = [&](double) { ++now; }};
  const Json settled = settle_gpus(bounds, cooling);
  EXPECT_EQ(now, 4u);
  EXPECT_EQ(settled["outside"].get<std::string>(), "");
  EXPECT_EQ(settled["gpus"][0]["temperature_c"].get<double>(), 61);
  EXPECT_EQ(settled["bounds"]["max_temperature_c"].get<double>(), bounds.max_temperature_c);

  double slept = 0;
  const Settling hot{
      .state = [&](int gpu) { return gpu == 0 ? std::optional(states[0]) : std::nullopt; },
      .sleep = [&](double seconds) { slept += seconds; }};
  EXPECT_THAT(settle_gpus(bounds, hot)["outside"].get<std::string>(),
              HasSubstr("84 C (at most 75)"));
  EXPECT_GE(slept, bounds.patience_s);
  const Settling none{.state = [](int) { return std::nullopt; }, .sleep = [](double) { FAIL(); }};
  EXPECT_TRUE(settle_gpus(bounds, none).is_null());
}

TEST(Sweep, AChildThatTakesTooLongIsEndedWithWhatItStarted) {
  const std::string log = (std::filesystem::temp_directory_path() / "veil_child_test.log").string();
  const double begin = steady_ms();
  const ChildEnd late = run_child({"/bin/sh", "-c", "sleep 60 & sleep 60"}, log, 0.3);
  EXPECT_TRUE(late.timed_out);
  EXPECT_LT(steady_ms() - begin, 8000);
  const ChildEnd ended = run_child({"/bin/sh", "-c", "echo words; exit 7"}, log, 60);
  EXPECT_FALSE(ended.timed_out);
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -9 $$"}, log, {}).code, 128 + 9);
  std::filesystem::remove(log);
}

}  // namespace
}  // namespace veil::sweep_test
