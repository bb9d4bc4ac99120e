#include "run/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>

#include "base/error.h"
#include "run/train_config.h"
#include "tensor/out_of_memory.h"

namespace veil {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Resources, FilesThatDoNotFitOnTheDiskAreNamed) {
  const std::string here = std::filesystem::temp_directory_path().string();
  const int64_t all = int64_t{1} << 60;
  check_disk_space({{here + "/not/there/yet", 1, "a checkpoint"}});
  try {
    // Each alone might fit, both do not: they share a disk.
    const auto free = static_cast<int64_t>(std::filesystem::space(here).available);
    check_disk_space({{here, free / 4 * 3, "2 checkpoints"}, {here, free / 4 * 3, "the export"}});
    FAIL() << "more than the disk has was taken";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("2 checkpoints"), HasSubstr("the export")));
  }
  EXPECT_THROW(check_disk_space({{here, all, "a checkpoint"}}), UserError);
}

TEST(Resources, CheckpointsAndTheExportAreCountedBeforeARun) {
  RunConfig config = training_config("llama-tiny");  // AdamW: two moments
  config.training.checkpoint_every = 10;
  config.training.keep_checkpoints = 2;
  config.training.export_folder = "out";
  const std::vector<PlannedFiles> planned = planned_files(config, "run", 1000, 1000, 100);
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_EQ(planned[0].bytes, 1000 * 12 * 3);  // one more than is kept
  EXPECT_EQ(planned[1].bytes, 1000 * 4);
  config.training.checkpoint_every = 0;  // one at the end
  config.training.export_folder = "";
  config.optimizer.average = 0.999;
  const std::vector<PlannedFiles> one = planned_files(config, "run", 1000, 1000, 100);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].bytes, 1000 * 16);
}

TEST(OutOfMemory, OnlyErrorsOfMemoryAreCalledSo) {
  EXPECT_TRUE(out_of_memory_reason(std::bad_alloc()));
  EXPECT_FALSE(out_of_memory_reason(std::runtime_error("broken")));
  EXPECT_FALSE(out_of_memory_reason(UserError("wrong")));
  try {
    empty_tensor({int64_t{1} << 60}, at::kByte, cpu_device());
    FAIL() << "an exabyte was given";
  } catch (const std::exception& error) {
    const auto reason = out_of_memory_reason(error);
    ASSERT_TRUE(reason);
    EXPECT_THAT(*reason, HasSubstr("1152921504606846976"));
  }
  EXPECT_GT(available_host_bytes(), 0);
}

}  // namespace
}  // namespace veil
