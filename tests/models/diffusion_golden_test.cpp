// Outputs, losses, gradients, and per-sample norms and clipped sums by every rule, of every
// diffusion transformer among the goldens.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "models/test_autograd_models.h"
#include "privacy/clipped_sink.h"
#include "privacy/norm_sink.h"

namespace veil {
namespace {

double relative(const Tensor& got, const Tensor& expected) {
  return (got.to(at::kDouble).cpu() - expected).abs().max().item<double>() /
         std::max(1e-12, expected.abs().max().item<double>());
}

void expect_all(const FlatParams& grads, const Model& model,
                const std::map<std::string, Tensor>& expected, DType dtype, double allowed) {
  ASSERT_EQ(model.params.size(), expected.size());
  const LayerScales scales(expected);
  for (size_t i = 0; i < model.params.size(); ++i) {
    const std::string& name = model.params[i].name;
    ASSERT_TRUE(expected.count(name)) << name;
    EXPECT_LE(
        relative_to_layer(grads[static_cast<ParamId>(i)], expected.at(name), scales, name, dtype),
        allowed)
        << name;
  }
}

void outputs_and_gradients_are_met(Device device) {
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    for (const AttentionKind attention : {AttentionKind::automatic, AttentionKind::math}) {
      for (const DType dtype : {at::kDouble, at::kFloat}) {
        SCOPED_TRACE(
            fmt::format("{} {} attention {}", golden.name, dtype_name(dtype), name_of(attention)));
        const double allowed = dtype == at::kDouble ? 1e-10 : 1e-5;
        const Model model = dit_model(golden.config, attention);
        const FlatParams params = golden.params(model, dtype, device),
                         grads(model, sum_dtype(dtype), device);
        const Batch batch = golden.batch_of(dtype, device);
        const BlockRun run(model, params, batch);
        const auto& head = dynamic_cast<const NoiseHead&>(*model.loss);
        EXPECT_LE(relative(head.predict(params, run.last()), golden.output), allowed);
        EXPECT_LE(relative(head.evaluate(params, run.last(), batch).losses, golden.losses),
                  allowed);
        SummedSink sink(grads.numel(), /*accumulate=*/false, grads.target());
        sink.begin_body();
        const double loss = golden.losses.sum().item<double>();
        EXPECT_NEAR(run.backward(sink), loss, allowed * loss);
        expect_all(grads, model, golden.grad_sum, dtype, allowed);
      }
    }
  }
}

void norms_and_clipped_sums_are_met(Device device) {
  using namespace privacy;
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    for (const DType dtype : {at::kDouble, at::kFloat}) {
      const double allowed = dtype == at::kDouble ? 1e-9 : 1e-5;
      const Model model = dit_model(golden.config);
      const FlatParams params = golden.params(model, dtype, device),
                       grads(model, sum_dtype(dtype), device);
      const Batch batch = golden.batch_of(dtype, device);
      const BlockRun run(model, params, batch);
      for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
        for (const int64_t tile : {5, 256}) {
          SCOPED_TRACE(
              fmt::format("{} {} {} tile {}", golden.name, dtype_name(dtype), name_of(rule), tile));
          std::vector<NormParam> shapes;
          for (const ParamShape& param : model.params)
            shapes.push_back({param.dims[0], param.numel() / param.dims[0], rule});
          const Tensor squared =
              at::zeros({static_cast<int64_t>(model.params.size()), batch.inputs.size(0)},
                        at::TensorOptions(at::kDouble).device(device));
          NormSink norm_sink(shapes, {.tile = tile}, squared);
          norm_sink.begin_body(batch.inputs);
          run.backward(norm_sink);
          const Tensor norms = squared.sum(0).sqrt(),
                       coefficients = (golden.clip_norm / (norms + 1e-6)).clamp_max(1);
          EXPECT_LE(relative(norms, golden.norms), allowed);
          EXPECT_LE(relative(coefficients, golden.clip_coefficients), allowed);
          ASSERT_EQ(model.params.size(), golden.squared_norms.size());
          const LayerScales scales(golden.squared_norms);
          for (size_t i = 0; i < model.params.size(); ++i) {
            const std::string& name = model.params[i].name;
            EXPECT_LE(relative_to_layer(squared.select(0, static_cast<int64_t>(i)),
                                        golden.squared_norms.at(name), scales, name, dtype),
                      3 * allowed)
                << name;
          }
          ClippedSink clipped(
              grads.numel(), /*accumulate=*/false, grads.target(),
              {coefficients.view({1, -1}), std::vector<int>(model.params.size(), 0)});
          run.backward(clipped);
          expect_all(grads, model, golden.grad_clipped_sum, dtype, 2 * allowed);
        }
      }
    }
  }
}

TEST(DiffusionGolden, OutputsLossesAndGradientsAreTheReferences) {
  outputs_and_gradients_are_met(cpu_device());
}

TEST(GpuDiffusionGolden, OutputsLossesAndGradientsAreTheReferences) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  outputs_and_gradients_are_met(gpu_device(0));
}

TEST(DiffusionGolden, NormsCoefficientsAndClippedSumsAreExactByEveryRule) {
  norms_and_clipped_sums_are_met(cpu_device());
}

TEST(GpuDiffusionGolden, NormsCoefficientsAndClippedSumsAreExactByEveryRule) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  norms_and_clipped_sums_are_met(gpu_device(0));
}

TEST(DiffusionGolden, TheAutogradModelIsTheReferenceToo) {
  for (const DiffusionGolden& golden : diffusion_goldens()) {
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
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    SCOPED_TRACE(golden.name);
    const Model model = dit_model(golden.config);
    const FlatParams grads(model, at::kFloat, device);
    const FlatParams params = golden.params(model, at::kBFloat16, device);
    const BlockRun run(model, params, golden.batch_of(at::kBFloat16, device));
    SummedSink sink(grads.numel(), /*accumulate=*/false, grads.target());
    sink.begin_body();
    run.backward(sink);
    NamedTensors got;
    for (size_t i = 0; i < model.params.size(); ++i)
      got[model.params[i].name] = grads[static_cast<ParamId>(i)];
    expect_near_as_pytorch(got, autograd_gradients(golden, at::kBFloat16, device), golden.grad_sum);
  }
}

TEST(DiffusionGolden, Bf16StaysNear) {
  bf16_stays_near(cpu_device());
}

TEST(GpuDiffusionGolden, Bf16StaysNear) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  bf16_stays_near(gpu_device(0));
}

TEST(DitConfig, ConfigsComeBackAsTheyWere) {
  for (const std::string& name : dit_preset_names()) {
    const DitConfig config = dit_preset(name).value();
    EXPECT_EQ(config_json(parse_dit_config(config_json(config), "config.json")),
              config_json(config))
        << name;
  }
}

TEST(DitConfig, TheSeedsDefaultIsDitLWithPatchesOfEight) {
  for (const char* spelling : {"dit-l/8", "DiT-L/8", "dit_l_8", "dit-l-8"}) {
    const std::optional<DitConfig> config = dit_preset(spelling);
    ASSERT_TRUE(config) << spelling;
    EXPECT_EQ(config->tokens(), 1024);
    EXPECT_EQ(config->hidden, 1024);
    EXPECT_EQ(config->layers, 24);
    EXPECT_EQ(config->heads, 16);
    EXPECT_EQ(config->classes, 1000);
    EXPECT_EQ(dit_model(*config).shape(1, at::kFloat, false).param_count(), 459'233'472);
  }
}

void expect_refused(DitConfig config, const std::string& part) {
  try {
    dit_model(config);
    ADD_FAILURE() << "not refused: " << part;
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(DitConfig, WhatDoesNotGoTogetherIsSaid) {
  DitConfig config = dit_preset("dit-tiny").value();
  config.image_size = 18;
  expect_refused(config, "image size 18 is not a multiple of the patch 4");
  config = dit_preset("dit-tiny").value();
  config.heads = 5;
  expect_refused(config, "hidden size 32 is not a multiple of the 5 heads");
  config = dit_preset("dit-tiny").value();
  config.classes = 0;
  expect_refused(config, "`classes` 0: allowed is 1 to");
}

}  // namespace
}  // namespace veil
