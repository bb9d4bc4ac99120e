// What the page of `foresight` says of predictions and measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "report/suite_page.h"
#include "suite/suite.h"

namespace veil {
namespace {

using ::testing::HasSubstr;

Record step_of(const std::string& title, double predicted_ms, double measured_ms,
               double predicted_bytes, double measured_bytes) {
  Record record;
  record.outcome = "ok";
  record.suite = "foresight";
  record.title = record.label = record.experiment = title;
  record.device = "cpu";
  record.avg_time_ms = measured_ms;
  record.std_time_ms = 0;
  record.peak_memory_bytes = measured_bytes;
  record.predicted_step_ms = predicted_ms;
  record.estimated_peak_bytes = predicted_bytes;
  return record;
}

TEST(Foresight, ErrorsOfTimeAndMemoryAreThoseOfTheRecords) {
  RecordFolder folder;
  folder.records = {step_of("near", 102, 100, 1000, 1000), step_of("early", 75, 100, 990, 1000),
                    step_of("late", 105, 100, 1000, 1000)};
  Record simulated = step_of("simulated", 200, 100, 1000, 1000);
  simulated.simulated = true;
  simulated.modelled_step_ms = 200;  // the time that counts: no error
  folder.records.push_back(simulated);
  Record failed = step_of("failed", 1, 100, 1, 1000);
  failed.outcome = "oom";
  folder.records.push_back(failed);
  const Verdict verdict = find_suite("foresight").page.verdict(folder);
  // 0, 2, 5 and 25 %: the middle one of four is the third.
  EXPECT_THAT(verdict.headline, HasSubstr("off by 5.0 % in the middle and 25.0 % at worst"));
  EXPECT_THAT(verdict.headline, HasSubstr("memory by at most 1.0 %"));
  EXPECT_THAT(verdict.findings[0], HasSubstr("Of 4 steps, 3 predicted within 10 % and 3 within"));
  EXPECT_THAT(verdict.findings[1], HasSubstr("early, predicted 75"));
  EXPECT_EQ(find_suite("foresight").page.table(folder.records).rows(), 4u);
  folder.records = {failed};
  EXPECT_THAT(find_suite("foresight").page.verdict(folder).headline, HasSubstr("No experiment"));
}

TEST(Foresight, EveryModelLengthAndModeIsMeasuredOnceAndWorldsTakeTurns) {
  const std::vector<Experiment> list = find_suite("foresight").experiments({});
  EXPECT_EQ(list.size(), 45u);
  std::set<std::string> names;
  int simulated = 0, checkpointed = 0;
  for (const Experiment& experiment : list) {
    names.insert(experiment.name);
    for (size_t i = 0; i < experiment.arguments.size(); ++i) {
      simulated += experiment.arguments[i] == "--simulate-world";
      checkpointed += experiment.arguments[i] == "full";
    }
  }
  EXPECT_EQ(names.size(), list.size());
  EXPECT_EQ(simulated, 30);
  EXPECT_EQ(checkpointed, 11);
}

}  // namespace
}  // namespace veil
