// What the optimizer was given, read back from what it left behind.
#include "train/update_probe.h"

#include <gtest/gtest.h>

#include "engine/test_run.h"

namespace veil {
namespace {

// The clipped sum over E, as the executor has it before any update.
TEST(UpdateProbe, WithoutNoiseItIsTheClippedSumOverTheExpectedBatch) {
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::sgd_momentum, OptimizerKind::adamw}) {
    for (const DType storage : {at::kFloat, at::kBFloat16}) {
      TestCase test;
      test.model = "llama-tiny";
      test.step = TestCase::all_of(at::kFloat);
      test.step.storage = storage;
      test.optimizer.kind = kind;
      test.optimizer.weight_decay = 0.1;
      test.step.optimizer = kind;
      test.clipped.emplace();
      test.clipped->noise_multiplier = 3;
      test.clipped->expected_batch = 40;
      SCOPED_TRACE(test.name());
      TestRun run(test, {});
      const std::vector<Tensor> sums = run.executor->gradients();
      const double deviation = 3 * 0.05 / 40;
      UpdateProbe probe(*run.executor, test.optimizer, deviation);
      probe.rewind(4);
      run.executor->silence_noise(true);
      run.executor->step(probe.learning_rate(1e-3));
      const Tensor silent = probe.gradient();
      EXPECT_EQ(run.executor->steps(), 5);
      Tensor expected = silent.clone().zero_();
      for (const UpdateProbe::Place& at : probe.places())
        expected.narrow(0, at.first, at.numel)
            .copy_(sums[static_cast<size_t>(at.param)].view({-1}).to(at::kDouble).div(40));
      EXPECT_LE(silent.sub(expected).norm().item<double>(), probe.read_error(expected));
      EXPECT_GT(expected.norm().item<double>(), 0);
      // The same step with noise: only noise is added, and a step later it is another one.
      probe.rewind(4);
      run.executor->silence_noise(false);
      run.executor->step(probe.learning_rate(1e-3));
      const Tensor noise = probe.gradient().sub(silent);
      double count = 0;
      for (const UpdateProbe::Place& at : probe.places()) count += static_cast<double>(at.numel);
      const double found = std::sqrt(noise.square().sum().item<double>() / count);
      // five deviations of a deviation: once in 1.7 million keys
      EXPECT_NEAR(
          found / deviation, 1,
          5 / std::sqrt(2 * count) + 2 * probe.read_error(silent) / (deviation * std::sqrt(count)));
    }
  }
}

}  // namespace
}  // namespace veil
