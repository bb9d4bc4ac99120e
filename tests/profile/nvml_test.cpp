#include "profile/nvml.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tensor/device.h"

namespace veil {

TEST(Nvml, AGpuThatIsNotThereHasNoState) {
  EXPECT_FALSE(gpu_state(-1).has_value());
  EXPECT_FALSE(gpu_state(gpu_count()).has_value());
  GpuSampler sampler(gpu_count());
  EXPECT_FALSE(sampler.stop().has_value());
}

TEST(GpuNvml, ASamplerGivesMeansWithinWhatAGpuCanDo) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  if (!gpu_state(0)) GTEST_SKIP() << "the management library does not answer";
  GpuSampler sampler(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  const auto summary = sampler.stop();
  ASSERT_TRUE(summary.has_value());
  EXPECT_GE(summary->samples, 2);
  EXPECT_GE(summary->mean.utilisation_percent, 0);
  EXPECT_LE(summary->mean.utilisation_percent, 100);
  EXPECT_GT(summary->mean.sm_clock_mhz, 0);
  EXPECT_GE(summary->max_power_w, summary->mean.power_w - 1e-9);
  EXPECT_FALSE(sampler.stop().has_value()) << "it has ended";
}

}  // namespace veil
