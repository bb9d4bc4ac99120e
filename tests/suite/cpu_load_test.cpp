#include "suite/cpu_load.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

TEST(CpuLoad, WhatOthersUsedIsWhatWasBusyAndNotOnesOwn) {
  const auto begin = read_cpu_times("cpu  100 0 50 1000 50 0 0 0 0 0\ncpu0 1 2 3\n", 100);
  const auto end = read_cpu_times("cpu  600 10 80 1500 60 5 5 100 0 0\n", 100);
  ASSERT_TRUE(begin && end);
  EXPECT_DOUBLE_EQ(begin->busy_s, 1.5);
  EXPECT_DOUBLE_EQ(begin->idle_s, 10.5);
  // 6.5 s were busy and 5.1 s idle.
  const auto shares = cpu_shares(*begin, *end, 4.0);
  EXPECT_NEAR(shares["others_percent"].get<double>(), 100 * 2.5 / 11.6, 1e-9);
  EXPECT_NEAR(shares["own_percent"].get<double>(), 100 * 4.0 / 11.6, 1e-9);
}

TEST(CpuLoad, CountsThatSayNothingGiveNothing) {
  EXPECT_FALSE(read_cpu_times("", 100));
  EXPECT_FALSE(read_cpu_times("intr 1 2 3 4 5", 100));
  EXPECT_TRUE(read_cpu_times("cpu 1 2 3 4", 100)) << "a kernel that counts less";
  EXPECT_TRUE(cpu_shares({1, 1}, {1, 1}, 0).is_null());
  EXPECT_DOUBLE_EQ(cpu_shares({1, 1}, {2, 2}, 5)["others_percent"].get<double>(), 0)
      << "ticks are coarser than rusage";
}

}  // namespace
}  // namespace veil
