// veil find-batch, as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/program.h"
#include "models/config.h"
#include "models/family.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramFindBatch : public ProgramTest {
 protected:
  static constexpr const char* kModel =
      "find-batch --model llama-tiny --seq-length 16 --device cpu ";
};

TEST_F(ProgramFindBatch, TheLargestBatchRanBelowTheLimitAndTheNextOneDoesNotFit) {
  const Answer answer =
      veil(std::string(kModel) + "--strategies ddp,zero3 --memory-limit 4MB --output-dir found");
  ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
  const Json found = read(work() / "found" / "max_batch_sizes.json");
  EXPECT_EQ(found["memory_limit_bytes"].get<int64_t>(), 4'000'000);
  ASSERT_EQ(found["strategies"].size(), 2u);
  std::string lines;
  for (const auto& entry : found["strategies"]) {
    const std::string strategy = entry["strategy"];
    const int64_t largest = entry["max_batch_size"];
    lines += strategy + " " + std::to_string(largest) + "\n";
    ASSERT_GT(largest, 1) << strategy;
    const Json record = read(work() / "found" / "trials" /
                             (strategy + "_b" + std::to_string(largest) + "_result.json"));
    EXPECT_EQ(record["outcome"].get<std::string>(), "ok");
    EXPECT_EQ(record["batch_size"].get<int64_t>(), largest);
    EXPECT_EQ(record["config"]["strategy"].get<std::string>(), strategy);
    EXPECT_EQ(record["peak_memory_bytes"].get<int64_t>(),
              entry["peak_memory_bytes"].get<int64_t>());
    EXPECT_LE(entry["peak_memory_bytes"].get<int64_t>(), 4'000'000);
    EXPECT_GT(entry["tokens_per_second"].get<double>(), 0);
    EXPECT_EQ(entry["too_large"]["batch_size"].get<int64_t>(), largest + 1);
    EXPECT_GT(entry["too_large"]["peak_memory_bytes"].get<int64_t>(), 4'000'000);
    EXPECT_EQ(entry["too_large"]["by"].get<std::string>(), "limit") << "it was run";
    // The estimate is exact, so the prediction needs one run on each side.
    EXPECT_EQ(entry["trials"].size(), 2u) << strategy;
    EXPECT_THAT(answer.out, HasSubstr(strategy + ": a batch of " + std::to_string(largest) +
                                      " is predicted\n"));
  }
  const std::string text = ProgramTest::text(work() / "found" / "max_batch_sizes.txt");
  EXPECT_EQ(text.substr(text.find('\n') + 1), lines);
  EXPECT_THAT(text, ::testing::StartsWith("# largest batch per rank: llama-tiny"));
  EXPECT_THAT(answer.out, HasSubstr("largest batch"));
}

TEST_F(ProgramFindBatch, APrivateStepHasALargestBatchOfItsOwn) {
  std::map<std::string, int64_t> largest;
  for (const std::string mode : {"no_dp", "materialize", "ghost"}) {
    const Answer answer = veil(std::string(kModel) + "--mode " + mode +
                               " --memory-limit 6MB --output-dir found_" + mode);
    ASSERT_EQ(answer.code, kExitDone) << answer.err << answer.out;
    const Json entry = read(work() / ("found_" + mode) / "max_batch_sizes.json")["strategies"][0];
    largest[mode] = entry["max_batch_size"].get<int64_t>();
    ASSERT_GT(largest[mode], 0) << mode;
    EXPECT_EQ(entry["trials"].size(), 2u) << mode;
    const Json record = read(work() / ("found_" + mode) / "trials" /
                             ("zero3_b" + std::to_string(largest[mode]) + "_result.json"));
    EXPECT_EQ(record["mode"].get<std::string>(), mode);
    EXPECT_LE(record["peak_memory_bytes"].get<int64_t>(), 6'000'000) << mode;
  }
  EXPECT_LT(largest["materialize"], largest["ghost"]) << "it keeps a gradient per sample";
  EXPECT_LE(largest["ghost"], largest["no_dp"]);
}

TEST_F(ProgramFindBatch, TheSearchStopsAtTheMaximum) {
  const Answer answer = veil(std::string(kModel) + "--max-batch 2 --json");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json entry = Json::parse(answer.out)["strategies"][0];
  EXPECT_EQ(entry["max_batch_size"].get<int64_t>(), 2);
  EXPECT_FALSE(entry.contains("too_large"));
}

TEST_F(ProgramFindBatch, WhereNotEvenOneFitsItSaysWhatToTry) {
  const Answer answer = veil(std::string(kModel) + "--memory-limit 1MiB");
  EXPECT_EQ(answer.code, kExitFailed);
  EXPECT_THAT(answer.out, HasSubstr("not even a batch of 1 fits in 1.00 MiB"));
  EXPECT_THAT(answer.out, HasSubstr("  try --seq-length "));
  EXPECT_THAT(answer.out, ::testing::Not(HasSubstr("try --batch-size")));
  EXPECT_EQ(read(work() / "batch_sizes" / "max_batch_sizes.json")["strategies"][0]["max_batch_size"]
                .get<int64_t>(),
            0);
}

TEST_F(ProgramFindBatch, AFailureThatIsNotMemoryStopsWithItsMessage) {
  fs::create_directory(work() / "broken");
  std::ofstream(work() / "broken" / "config.json") << config_json(*preset_config("llama-tiny"));
  std::ofstream(work() / "broken" / "model.safetensors") << "these are no weights";
  const Answer answer =
      veil("find-batch --model broken --seq-length 16 --device cpu --max-batch 2");
  EXPECT_EQ(answer.code, kExitFailed);
  EXPECT_EQ(answer.complaints(), 1) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("not for want of memory"));
  EXPECT_THAT(answer.err, HasSubstr("model.safetensors"));
}

TEST_F(ProgramFindBatch, WrongInputIsOneLineAndLeavesNothing) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--strategy zero9", "allowed are ddp, zero2, zero3 and all"},
      {"--memory-limit much", "--memory-limit"},
      {"--memory-limit 0", "--memory-limit"},
      {"--max-batch 0", "--max-batch 0"},
      {"--batch-size 4", "--batch-size"},
      {"--seq-length 10000", "positions"},
      {"--output-dir /dev/null/found", "/dev/null/found"}};
  for (const auto& [words, says] : cases) {
    SCOPED_TRACE(words);
    const Answer answer = veil("find-batch --model llama-tiny --device cpu " + words);
    EXPECT_EQ(answer.code, kExitUsage) << answer.out;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(says));
    EXPECT_TRUE(fs::is_empty(work()));
  }
}

}  // namespace
}  // namespace veil
