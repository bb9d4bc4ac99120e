// Hugging Face's own logits, losses and gradients, for every language model among the goldens.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "models/test_language_golden.h"

namespace veil {
namespace {

double relative(const Tensor& got, const Tensor& expected) {
  return (got.to(at::kDouble) - expected).abs().max().item<double>() /
         std::max(1e-30, expected.abs().max().item<double>());
}

struct Tolerances {
  double logits, grads;
};

void expect_golden(const LanguageGolden& golden, const HandRun& run, const Tolerances& allowed) {
  Tensor logits = run.logits.to(at::kDouble);
  if (logits.dim() == 3) logits = logits * golden.mask.unsqueeze(-1);  // padded positions are zeros in the file
  EXPECT_LE(relative(logits, golden.logits), allowed.logits);
  EXPECT_LE(relative(run.losses, golden.losses), allowed.logits);
  EXPECT_NEAR(run.loss, golden.losses.sum().item<double>(), allowed.logits * golden.losses.sum().item<double>());
  ASSERT_EQ(run.grads.size(), golden.grad_sum.size());
  for (const auto& [name, expected] : golden.grad_sum) {
    ASSERT_TRUE(run.grads.count(name)) << name;
    EXPECT_LE(relative(run.grads.at(name), expected), allowed.grads) << name;
  }
}

void goldens_are_met(Device device) {
  for (const LanguageGolden& golden : language_goldens()) {
    for (const std::string& weights : golden.weight_files) {
      for (const AttentionKind attention : {AttentionKind::automatic, AttentionKind::math}) {
        // 0: as in training; a few bytes: some columns of the vocabulary at a time, made twice.
        for (const int64_t piece : {0, 2048}) {
          SCOPED_TRACE(weights + " attention " + name_of(attention) + " pieces of " + std::to_string(piece));
          const Model model = golden.model({.attention = attention, .logit_piece_bytes = piece});
          expect_golden(golden, run_by_hand(golden, model, weights, at::kDouble, device), {1e-10, 1e-10});
          expect_golden(golden, run_by_hand(golden, model, weights, at::kFloat, device), {1e-5, 1e-5});
        }
      }
    }
  }
}

TEST(LanguageGolden, LogitsLossesAndGradientsAreHuggingFaces) {
  goldens_are_met(cpu_device());
}

TEST(GpuLanguageGolden, LogitsLossesAndGradientsAreHuggingFaces) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  goldens_are_met(gpu_device(0));
}

// bf16 has no golden: it is held against fp32 of our own.
void bf16_stays_near(Device device) {
  for (const LanguageGolden& golden : language_goldens()) {
    SCOPED_TRACE(golden.name);
    const Model model = golden.model();
    const HandRun exact = run_by_hand(golden, model, golden.weight_files.front(), at::kFloat, device);
    const HandRun run = run_by_hand(golden, model, golden.weight_files.front(), at::kBFloat16, device);
    EXPECT_LE(relative(run.losses, exact.losses), 0.02);
    for (const auto& [name, expected] : exact.grads) {
      const double length = expected.norm().item<double>();
      EXPECT_LE((run.grads.at(name) - expected).norm().item<double>(), 0.04 * length) << name;
    }
  }
}

TEST(LanguageGolden, Bf16StaysNear) {
  bf16_stays_near(cpu_device());
}

TEST(GpuLanguageGolden, Bf16StaysNear) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  bf16_stays_near(gpu_device(0));
}

}  // namespace
}  // namespace veil
