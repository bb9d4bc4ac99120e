// PEFT's own logits, losses and gradients of adapters; and what is left of them on disk.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "models/test_lora_golden.h"

namespace veil::lora_golden_test {
namespace {

double relative(const Tensor& got, const Tensor& expected) {
  return (got.to(at::kDouble) - expected).abs().max().item<double>() /
         std::max(1e-30, expected.abs().max().item<double>());
}

Tensor without_padding(const Tensor& logits, const LanguageGolden& golden) {
  return logits.dim() == 3 ? logits.to(at::kDouble) * golden.mask.unsqueeze(-1)
                           : logits.to(at::kDouble);
}

TEST(LoraGolden, LogitsLossesAndGradientsArePefts) {
  for (const LoraGolden& lora : lora_goldens()) {
    for (const DType dtype : {at::kDouble, at::kFloat}) {
      // fp32: ten times what plain PyTorch with PEFT is off by (README.md of the goldens)
      const double allowed = dtype == at::kDouble ? 1e-10 : 2e-5,
                   of_gradients = dtype == at::kDouble ? 1e-10 : 6e-5;
      SCOPED_TRACE(lora.golden.name + " " + dtype_name(dtype));
      const Model model = lora.model();
      const HandRun run = run_by_hand(lora.golden, model, lora.weights(model), dtype, cpu_device());
      EXPECT_LE(relative(without_padding(run.logits, lora.golden), lora.golden.logits), allowed);
      EXPECT_LE(relative(run.losses, lora.golden.losses), allowed);
      const LayerScales scales(lora.golden.grad_sum);
      for (const ParamShape& param : model.params) {
        if (param.frozen) continue;
        EXPECT_LE(relative_to_layer(run.grads.at(param.name), lora.golden.grad_sum.at(param.name),
                                    scales, param.name, dtype),
                  of_gradients)
            << param.name;
      }
    }
  }
}

TEST(LoraGolden, AMergedModelIsPefts) {
  for (const LoraGolden& lora : lora_goldens()) {
    SCOPED_TRACE(lora.golden.name);
    const Model adapted = lora.model();
    const InitialWeights initial = lora.weights(adapted);
    const auto whole = [&](ParamId id) {
      const ParamShape& param = adapted.params[static_cast<size_t>(id)];
      const Tensor values = empty_tensor({param.numel()}, at::kDouble, cpu_device());
      EXPECT_TRUE(initial.fill(id, 0, values)) << param.name;
      return values.view(param.dims);
    };
    const Model plain = lora.golden.model();
    const std::vector<ParamId> ids = base_params(adapted);
    ASSERT_EQ(ids.size(), plain.params.size());
    InitialWeights merged;
    merged.fill = [&](ParamId id, int64_t, const Tensor& out) {
      const ParamId from = ids[static_cast<size_t>(id)];
      EXPECT_EQ(adapted.params[static_cast<size_t>(from)].name,
                plain.params[static_cast<size_t>(id)].name);
      out.copy_(merged_parameter(adapted, from, whole).reshape({-1}));
      return true;
    };
    const HandRun run = run_by_hand(lora.golden, plain, merged, at::kDouble, cpu_device());
    EXPECT_LE(relative(without_padding(run.logits, lora.golden), lora.merged_logits), 1e-10);
  }
}

}  // namespace
}  // namespace veil::lora_golden_test
