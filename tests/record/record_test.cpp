// Records that the program really wrote, under tests/record/records, and what becomes of them.
#include "record/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/test_paths.h"
#include "base/text.h"
#include "record/batch_search.h"
#include "record/folder.h"
#include "record/metrics_line.h"
#include "record/verify_record.h"
#include "report/test_records.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

std::vector<fs::path> files_ending_in(const std::string& ending) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(source_root() + "/tests/record/records")) {
    if (entry.path().string().ends_with(ending)) paths.push_back(entry.path());
  }
  return paths;
}

json parsed(const fs::path& path) {
  return json::parse(read_file(path.string()));
}

TEST(Record, EveryWrittenRecordComesBackWithEveryKeyAndValue) {
  std::set<std::string> outcomes, parts;
  for (const fs::path& path : files_ending_in("_result.json")) {
    const json source = parsed(path);
    const Record record = record_from_json(source);
    EXPECT_EQ(json(to_json(record)), source) << path;
    outcomes.insert(record.outcome);
    for (const auto& [key, unused] : source.items()) parts.insert(key);
  }
  EXPECT_THAT(outcomes, ::testing::ElementsAre("error", "ok", "oom"));
  // The committed records are of every kind.
  for (const char* const key :
       {"clip", "cpu_during", "data", "diffusion", "kernels", "memory_rows", "modelled_step_ms",
        "notices", "phases", "ranks", "remedies", "repeats", "snapshots", "vocab_size"})
    EXPECT_TRUE(parts.count(key)) << key;
}

TEST(Record, TheResultOfFindBatchComesBack) {
  for (const fs::path& path : files_ending_in("max_batch_sizes.json")) {
    const json source = parsed(path);
    EXPECT_EQ(json(to_json(batch_search_from_json(source))), source) << path;
    EXPECT_FALSE(batch_search_from_json(source).strategies.at(0).trials.empty());
  }
}

TEST(Record, WhatVerifyFoundComesBack) {
  for (const fs::path& path : files_ending_in("verify.json")) {
    const json source = parsed(path);
    const VerifyRecord record = verify_record_from_json(source);
    EXPECT_EQ(json(to_json(record)), source) << path;
    EXPECT_FALSE(record.rows.empty() || record.noise.empty());
  }
}

TEST(Record, EveryLineOfATrainingRunsMetricsComesBack) {
  int steps = 0, evaluations = 0;
  for (const fs::path& path : files_ending_in("metrics.jsonl")) {
    for (const std::string& text : split(read_file(path.string()), '\n')) {
      if (text.empty()) continue;
      const MetricsLine line = metrics_line_from_json(parse_object(text));
      EXPECT_EQ(json(to_json(line)), json::parse(text));
      ++(line.is_step() ? steps : evaluations);
    }
  }
  EXPECT_GT(steps, 0);
  EXPECT_GT(evaluations, 0);
  const MetricsLine spent = metrics_line_from_json({{"step", 3}, {"epsilon", "inf"}});
  EXPECT_EQ(to_json(spent).dump(), R"({"step":3,"epsilon":"inf"})");
}

TEST(Record, AFolderOfThemIsReadAndReported) {
  const test::Folder out;
  for (const fs::path& path : files_ending_in("_result.json")) {
    json record = parsed(path);
    record["suite"] = "";
    out.write(path.filename().string(), record.dump());
  }
  const RecordFolder folder = read_records(out.path());
  EXPECT_TRUE(folder.damaged.empty());
  EXPECT_EQ(folder.records.size(), files_ending_in("_result.json").size());
  EXPECT_THAT(test::write_report(out.path(), "").summary, HasSubstr("out of memory"));
}

TEST(Record, WhatARecordDoesNotHoldStaysEmptyAndIsNotWritten) {
  const Record record = record_from_json(json{{"schema", 1}, {"avg_time_ms", nullptr}});
  EXPECT_TRUE(record.ok());
  EXPECT_FALSE(record.avg_time_ms || record.peak_memory_bytes || record.world);
  EXPECT_EQ(to_json(record).dump(), R"({"schema":1})");
}

TEST(Record, MemoryInOtherUnitsIsReadWhereThereAreNoBytes) {
  EXPECT_EQ(record_from_json(json{{"peak_memory_mb", 2.5}}).peak_memory_bytes, 2'500'000);
  EXPECT_EQ(record_from_json(json{{"peak_memory_gb", 3}, {"peak_memory_mb", 1}}).peak_memory_bytes,
            3'000'000'000);
  EXPECT_EQ(
      record_from_json(json{{"peak_memory_gb", 3}, {"peak_memory_bytes", 7}}).peak_memory_bytes, 7);
}

TEST(Record, AnotherTypeThanTheFieldsIsNamed) {
  const auto complaint = [](const json& source) {
    try {
      record_from_json(source);
    } catch (const DamagedRecordError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(complaint({{"avg_time_ms", "soon"}}),
            "'avg_time_ms' is a string, expected is a number");
  EXPECT_EQ(complaint({{"stages", {1}}}), "'stages' is a number, expected is an object");
  EXPECT_EQ(complaint({{"phases", {{"forward", 3}}}}),
            "'forward' is a number, expected is an object");
  EXPECT_EQ(complaint({{"schema", 2}}),
            "its schema 2 is newer than 1, the newest that this program knows");
  EXPECT_EQ(complaint({{"outcome", "ok"}, {"avg_time_ms", 1}}),
            "it says that all went well and holds no peak memory");
}

}  // namespace
}  // namespace veil
