// Sensitivity as a property: whatever the data, one sample more or less moves the clipped sum, as
// it is really summed, by C (1 + slack) at most.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/test_sensitivity.h"

namespace veil {
namespace {

TEST(Sensitivity, OneSampleMovesTheClippedSumByCAtMost) {
  int64_t clipped = 0;
  for (const TestCase& test : sensitivity_cases(1)) {
    const SensitivityFound found = one_sample_less(test, {});
    SCOPED_TRACE(test.name());
    EXPECT_LE(found.moved, test.clipped->clip_norm * (1 + stated_slack(test.step.compute)));
    clipped += found.moved > 0.98 * test.clipped->clip_norm;
  }
  EXPECT_GT(clipped, 3) << "no sample is clipped: the bound was not tried";
}

// Adding a sample shifts those behind it into other places and micro-batches.
TEST(Sensitivity, RemovingASampleAltogetherIsNoWorse) {
  for (TestCase test : sensitivity_cases(1)) {
    // there other places round other samples' gradients differently
    if (test.step.compute == at::kBFloat16) continue;
    SCOPED_TRACE(test.name());
    TestRun run(test, {});
    const Batch all = run.samples(6);
    auto without = [&](int64_t left_out) {
      auto rest = [&](const Tensor& tensor) {
        return at::cat({tensor.narrow(0, 0, left_out), tensor.narrow(0, left_out + 1, 5 - left_out),
                        tensor.narrow(0, 0, 1)});
      };
      Batch batch = all.each(rest);
      batch.counted = empty_tensor({6}, at::kByte, cpu_device()).fill_(1);
      batch.counted.narrow(0, 5, 1).zero_();
      return batch;
    };
    run.executor->load(all);
    const std::vector<Tensor> whole = run.executor->gradients();
    for (const int64_t left_out : {0, 3}) {
      run.executor->load(without(left_out));
      EXPECT_LE(distance(whole, run.executor->gradients()),
                test.clipped->clip_norm * (1 + stated_slack(test.step.compute)));
    }
  }
}

}  // namespace
}  // namespace veil
