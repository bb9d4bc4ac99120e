// Runs the rank tests on every rank: `veil_rank_tests --ranks W [gtest options]` starts W ranks of
// itself with the product's launcher. Rank 0 speaks; another rank speaks only of its failures. A
// failure on any rank fails all.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/launch.h"
#include "ranks/rank_harness.h"

namespace {

// Replaces gtest's printer on all ranks but 0.
class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  // Kept here: gtest holds the lock of its own record of it while it reports a failure.
  void OnTestStart(const testing::TestInfo& test) override { test_ = &test; }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s.%s: %s:%d\n%s\n", rank_,
                 test_ ? test_->test_suite_name() : "", test_ ? test_->name() : "",
                 result.file_name() ? result.file_name() : "", result.line_number(),
                 result.message());
  }

 private:
  int rank_;
  const testing::TestInfo* test_ = nullptr;
};

int run_on_this_rank(const veil::RankInfo& info, int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (info.rank != 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(info.rank));
  }
  veil::World world(info);
  try {
    const int failed = RUN_ALL_TESTS();
    return veil::any_rank_says(failed != 0) ? 1 : 0;
  } catch (const std::exception& error) {
    world.fail(error.what(), veil::kExitFailed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 0;
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--ranks" && i + 1 < argc) {
      ranks = std::atoi(argv[++i]);
    } else {
      arguments.push_back(argv[i]);
    }
  }
  try {
    const veil::RankInfo info = veil::rank_info_from_environment();
    if (ranks > 0 && info.launcher == veil::Launcher::none)
      return veil::launch_local_ranks(ranks, arguments);
    return run_on_this_rank(info, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "veil_rank_tests: %s\n", error.what());
    return 1;
  }
}
