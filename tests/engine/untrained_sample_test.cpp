// A sample without a token to train on, as a conversation whose replies lie beyond the sequence.
#include <gtest/gtest.h>

#include "engine/test_sensitivity.h"

namespace veil {
namespace {

TEST(UntrainedSample, ContributesNothingToAPrivateStep) {
  using privacy::PassKind;
  for (const PassKind pass : {PassKind::keep, PassKind::book, PassKind::two_pass}) {
    for (const auto clip : {privacy::ClipFunction::abadi, privacy::ClipFunction::automatic}) {
      TestCase test;
      test.model = "llama-tiny";
      test.clipped.emplace();
      test.clipped->pass = pass;
      test.clipped->clip = clip;
      SCOPED_TRACE(test.name());
      TestRun run(test, {});
      constexpr int64_t kUntrained = 2, kIgnored = -100;
      const auto gradients = [&](bool counted, bool masked, int64_t token) {
        Batch batch = run.samples(6);
        batch.counted = empty_tensor({6}, at::kByte, cpu_device()).fill_(1);
        batch.counted.data_ptr<uint8_t>()[kUntrained] = counted;
        if (masked) batch.targets[kUntrained].fill_(kIgnored);
        if (token >= 0) batch.inputs[kUntrained].fill_(token);
        run.executor->load(batch);
        return run.executor->gradients();
      };
      const auto without = gradients(false, false, -1);
      EXPECT_EQ(distance(without, gradients(true, true, -1)), 0);
      // Nothing of its text is left.
      EXPECT_EQ(distance(without, gradients(true, true, 7)), 0);
      EXPECT_GT(distance(without, gradients(true, false, -1)), 1e-6);
    }
  }
}

}  // namespace
}  // namespace veil
