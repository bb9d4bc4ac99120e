// The memory lines of a run.
#include "profile/stage.h"

#include <gtest/gtest.h>

#include "record/record.h"

namespace veil {

TEST(Stage, TheSeedsKeysComeFirstInItsOrderAndInBinaryGigabytes) {
  StageMemory memory;
  memory.stage = "after model creation";
  memory.rank = 3;
  memory.figures = {int64_t{9} << 30, int64_t{10} << 30, int64_t{11} << 30, int64_t{12} << 30};
  memory.resident_bytes = int64_t{1} << 29;
  memory.current[static_cast<size_t>(Space::host)][Category::parameters] = 77;
  const nlohmann::ordered_json json = to_json(memory);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  keys.resize(8);
  EXPECT_EQ(keys,
            (std::vector<std::string>{"stage", "rank", "log_key", "cuda_memory_allocated_GB",
                                      "cuda_max_memory_allocated_GB", "cuda_memory_reserved_GB",
                                      "cuda_max_memory_reserved_GB", "cpu_memory_rss_GB"}));
  EXPECT_EQ(json["log_key"], "memory");
  EXPECT_EQ(json["rank"], 3);
  EXPECT_EQ(json["cuda_memory_allocated_GB"], 9.0);
  EXPECT_EQ(json["cuda_max_memory_reserved_GB"], 12.0);
  EXPECT_EQ(json["cpu_memory_rss_GB"], 0.5);
  EXPECT_EQ(json["max_memory_allocated_bytes"], int64_t{10} << 30);
  EXPECT_EQ(json["bytes_by_category"]["host"].dump(), R"({"parameters":77})");
  EXPECT_EQ(json["bytes_by_category"]["device"].dump(), "{}");
  EXPECT_EQ(json.dump().find('\n'), std::string::npos) << "a line is one line";
}

TEST(Stage, OnCpuTheLineHoldsTheLedgersFigures) {
  memory::install();
  const CategoryScope scope(Category::data);
  const Tensor held = empty_tensor({1000}, at::kFloat, cpu_device());
  const nlohmann::ordered_json json =
      to_json(take_stage_memory("after data creation", 0, cpu_device()));
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["memory_allocated_bytes"], memory::current(Space::host).total());
  EXPECT_EQ(json["memory_reserved_bytes"], json["memory_allocated_bytes"]);
  EXPECT_GE(json["bytes_by_category"]["host"]["data"].get<int64_t>(), 4000);
  EXPECT_GT(json["cpu_memory_rss_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_GE(json["max_memory_allocated_bytes"], json["memory_allocated_bytes"]);
}

}  // namespace veil
