// Hugging Face's own logits, losses and gradients, for every language model among the goldens.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "models/test_autograd_models.h"

namespace veil::language_golden_test {
namespace {

double relative(const Tensor& got, const Tensor& expected) {
  return (got.to(at::kDouble) - expected).abs().max().item<double>() /
         std::max(1e-30, expected.abs().max().item<double>());
}

struct Tolerances {
  DType dtype;
  double logits, grads;
};

void expect_golden(const LanguageGolden& golden, const HandRun& run, const Tolerances& allowed) {
  Tensor logits = run.logits.to(at::kDouble);
  // padded positions are zeros in the file
  if (logits.dim() == 3) logits = logits * golden.mask.unsqueeze(-1);
  EXPECT_LE(relative(logits, golden.logits), allowed.logits);
  EXPECT_LE(relative(run.losses, golden.losses), allowed.logits);
  EXPECT_NEAR(run.loss, golden.losses.sum().item<double>(),
              allowed.logits * golden.losses.sum().item<double>());
  ASSERT_EQ(run.grads.size(), golden.grad_sum.size());
  const LayerScales scales(golden.grad_sum);
  for (const auto& [name, expected] : golden.grad_sum) {
    ASSERT_TRUE(run.grads.count(name)) << name;
    EXPECT_LE(relative_to_layer(run.grads.at(name), expected, scales, name, allowed.dtype),
              allowed.grads)
        << name;
  }
}

void goldens_are_met(Device device) {
  for (const LanguageGolden& golden : language_goldens()) {
    const double fp32 = fp32_tolerance(golden);
    for (const std::string& weights : golden.weight_files) {
      for (const AttentionKind attention : {AttentionKind::automatic, AttentionKind::math}) {
        // 0: as in training; a few bytes: some columns of the vocabulary at a time, made twice.
        for (const int64_t piece : {0, 2048}) {
          SCOPED_TRACE(weights + " attention " + name_of(attention) + " pieces of " +
                       std::to_string(piece));
          const Model model = golden.model({.attention = attention, .logit_piece_bytes = piece});
          expect_golden(golden, run_by_hand(golden, model, weights, at::kDouble, device),
                        {at::kDouble, 1e-10, 1e-10});
          expect_golden(golden, run_by_hand(golden, model, weights, at::kFloat, device),
                        {at::kFloat, fp32, fp32});
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

TEST(LanguageGolden, TheAutogradModelsAreHuggingFacesToo) {
  for (const LanguageGolden& golden : language_goldens()) {
    SCOPED_TRACE(golden.name);
    const LayerScales scales(golden.grad_sum);
    const NamedTensors grads = autograd_gradients(golden, at::kDouble, cpu_device());
    ASSERT_EQ(grads.size(), golden.grad_sum.size());
    for (const auto& [name, expected] : golden.grad_sum)
      EXPECT_LE(relative_to_layer(grads.at(name), expected, scales, name, at::kDouble), 1e-10)
          << name;
  }
}

// How far bf16 may be off is PyTorch's to say: it depends on the model and its data.
void bf16_stays_near(Device device) {
  for (const LanguageGolden& golden : language_goldens()) {
    SCOPED_TRACE(golden.name);
    const Model model = golden.model();
    const HandRun run =
        run_by_hand(golden, model, golden.weight_files.front(), at::kBFloat16, device);
    EXPECT_LE(relative(run.losses, golden.losses), 0.02);
    expect_near_as_pytorch(run.grads, autograd_gradients(golden, at::kBFloat16, device),
                           golden.grad_sum);
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
}  // namespace veil::language_golden_test
