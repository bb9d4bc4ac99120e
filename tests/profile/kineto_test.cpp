#include "profile/kineto.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "profile/memory.h"

namespace veil::kineto_test {

namespace {

const OperatorTime* find(const KernelProfile& profile, const std::string& name,
                         bool on_gpu = false) {
  for (const OperatorTime& time : profile.operators()) {
    if (time.name == name && time.on_gpu == on_gpu) return &time;
  }
  return nullptr;
}

class Kineto : public ::testing::Test {
 protected:
  Kineto()
      : folder_(std::filesystem::temp_directory_path() /
                ("veil_kineto_" + std::to_string(getpid()))) {}
  ~Kineto() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return (folder_ / "t.pt.trace.json").string(); }
  std::filesystem::path folder_;
};

}  // namespace

TEST_F(Kineto, AProfileHoldsOperatorsWithShapesMemoryAndTheRowsAroundThem) {
  memory::install();
  KernelProfile profile;
  profile.start();
  {
    const RowRange row("forward block.0");
    const Tensor product = at::mm(at::ones({64, 32}), at::ones({32, 16}));
    memory::check(Space::host, "under a profile");
  }
  profile.stop_and_save(path());
  const OperatorTime* product = find(profile, "aten::mm");
  ASSERT_NE(product, nullptr);
  EXPECT_EQ(product->calls, 1);
  EXPECT_GT(product->total_ms, 0);
  const OperatorTime* row = find(profile, "forward block.0");
  ASSERT_NE(row, nullptr);
  EXPECT_GE(row->total_ms, product->total_ms);
  EXPECT_NE(profile.top_table().find("aten::mm"), std::string::npos);

  bool has_shapes = false, has_memory = false;
  const nlohmann::json whole = nlohmann::json::parse(read_file(path()));
  for (const auto& event : whole["traceEvents"]) {
    if (event.value("name", "") == "aten::mm" && event["args"].contains("Input Dims")) {
      has_shapes = event["args"]["Input Dims"].dump().find("[64,32],[32,16]") != std::string::npos;
    }
    if (event.value("name", "") == "[memory]") has_memory = true;
  }
  EXPECT_TRUE(has_shapes);
  EXPECT_TRUE(has_memory);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1)
      << "a part was left";
}

TEST_F(Kineto, RowsOfOtherThreadsAreInTheProfileWithTheirMemory) {
  KernelProfile profile;
  profile.start();
  std::thread([] {
    const RowRange row("gather block.1");
    at::ones({12345});
  }).join();
  profile.stop_and_save(path());
  EXPECT_NE(read_file(path()).find(std::to_string(12345 * 4)), std::string::npos);
  EXPECT_NE(find(profile, "gather block.1"), nullptr);
  EXPECT_NE(find(profile, "aten::ones"), nullptr);
}

TEST_F(Kineto, AProfileCanBeTakenAgainAndOnlyOneAtATime) {
  KernelProfile profile, other;
  profile.start();
  EXPECT_THROW(other.start(), std::logic_error);
  profile.stop_and_save(path());
  EXPECT_THROW(profile.stop_and_save(path()), std::logic_error);
  other.start();
  at::ones({4});
  other.stop_and_save(path());
  EXPECT_NE(find(other, "aten::ones"), nullptr);
  {
    KernelProfile dropped;
    dropped.start();
  }
  profile.start();
  profile.stop_and_save(path());
  EXPECT_EQ(find(profile, "aten::ones"), nullptr) << "an earlier profile's events came along";
}

TEST_F(Kineto, APlaceThatCannotBeWrittenIsAUserError) {
  KernelProfile profile;
  profile.start();
  EXPECT_THROW(profile.stop_and_save("/proc/veil/trace.json"), UserError);
}

using GpuKineto = Kineto;

TEST_F(GpuKineto, KernelsAreInTheProfile) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device device = gpu_device(0);
  const auto options = at::TensorOptions().device(device);
  KernelProfile profile;
  profile.start();
  const Tensor product = at::mm(at::ones({256, 256}, options), at::ones({256, 256}, options));
  synchronize(device);
  profile.stop_and_save(path());
  bool any = false;
  for (const OperatorTime& time : profile.operators()) any = any || time.on_gpu;
  EXPECT_TRUE(any) << profile.top_table();
}

}  // namespace veil::kineto_test
