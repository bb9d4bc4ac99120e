// Per-sample norms, coefficients and clipped sums of every golden language model, by every rule,
// without a change in a model.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "models/load.h"
#include "models/test_autograd_models.h"
#include "privacy/clipped_sink.h"
#include "privacy/norm_sink.h"

namespace veil::privacy {
namespace {

struct Clipped {
  std::map<std::string, Tensor> squared_norms, sums;
  Tensor norms, coefficients;
};

double relative(const Tensor& got, const Tensor& expected) {
  return (got.to(at::kDouble).cpu() - expected).abs().max().item<double>() /
         std::max(1e-12, expected.abs().max().item<double>());
}

// One forward, a backward for the norms, a backward for the sums: the same tape is read twice.
class TwoPasses {
 public:
  TwoPasses(const LanguageGolden& golden, const Model& model, DType dtype, Device device)
      : golden_(golden),
        model_(model),
        params_(model, dtype, device),
        grads_(model, sum_dtype(dtype), device),
        batch_{golden.batch.inputs.to(device), golden.batch.targets.to(device)} {
    const InitialWeights initial =
        load_weights(golden.weight_files.front(), golden.config, model.params);
    for (size_t i = 0; i < model.params.size(); ++i)
      initial.fill(static_cast<ParamId>(i), 0, params_[static_cast<ParamId>(i)].view({-1}));
  }

  // Overwrites one hidden state, as an overflow would.
  void poison(int64_t sample) { poisoned_ = sample; }

  Clipped run(NormRule rule, int64_t tile) {
    std::vector<Tape> tapes(model_.blocks.size());
    Flow flow{batch_.inputs};
    for (size_t b = 0; b < model_.blocks.size(); ++b) {
      flow = model_.blocks[b]->forward(params_, flow, tapes[b]);
      if (b == 0 && poisoned_ >= 0)
        flow.hidden.select(0, poisoned_).fill_(std::numeric_limits<double>::infinity());
    }
    auto backward = [&](GradSink& sink) {
      const Tensor loss =
          at::zeros({1}, at::TensorOptions(at::kDouble).device(batch_.inputs.device()));
      Flow grad = model_.loss->run(params_, flow, batch_, loss, sink);
      for (size_t b = model_.blocks.size(); b-- > 0;)
        grad = model_.blocks[b]->backward(params_, grad, tapes[b], sink, b > 0);
    };
    const int64_t samples = batch_.inputs.size(0);
    const Tensor squared = at::zeros({static_cast<int64_t>(model_.params.size()), samples},
                                     at::TensorOptions(at::kDouble).device(batch_.inputs.device()));
    std::vector<NormParam> shapes;
    for (const ParamShape& param : model_.params)
      shapes.push_back({param.dims[0], param.numel() / param.dims[0], rule});
    NormSinkOptions options{.tile = tile};
    if (golden_.config.tied && golden_.config.task == Task::causal_lm) options.tied_table = 0;
    NormSink norms(shapes, options, squared);
    norms.begin_body(batch_.inputs);
    backward(norms);

    Clipped result;
    result.norms = squared.sum(0).sqrt();
    result.coefficients = (golden_.clip_norm / (result.norms + 1e-6)).clamp_max(1);
    result.coefficients.masked_fill_(result.norms.isfinite().logical_not(), 0);
    ClippedSink clipped(
        grads_.numel(), /*accumulate=*/false, grads_.target(),
        {result.coefficients.view({1, -1}), std::vector<int>(model_.params.size(), 0)});
    backward(clipped);
    for (size_t i = 0; i < model_.params.size(); ++i) {
      result.squared_norms[model_.params[i].name] =
          squared.select(0, static_cast<int64_t>(i)).cpu();
      result.sums[model_.params[i].name] = grads_[static_cast<ParamId>(i)].cpu().clone();
    }
    return result;
  }

 private:
  const LanguageGolden& golden_;
  const Model& model_;
  FlatParams params_, grads_;
  Batch batch_;
  int64_t poisoned_ = -1;
};

void goldens_are_met(Device device) {
  for (const LanguageGolden& golden : language_goldens()) {
    const LayerScales norm_scales(golden.squared_norms), sum_scales(golden.grad_clipped_sum);
    const double fp32 = fp32_tolerance(golden);
    for (const int64_t piece : {0, 2048}) {
      const Model model = golden.model({.logit_piece_bytes = piece});
      for (const DType dtype : {at::kDouble, at::kFloat}) {
        TwoPasses passes(golden, model, dtype, device);
        for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
          for (const int64_t tile : {5, 256}) {
            SCOPED_TRACE(fmt::format("{} {} {} tile {} pieces of {}", golden.name,
                                     dtype_name(dtype), name_of(rule), tile, piece));
            const double allowed = dtype == at::kDouble ? 1e-9 : fp32;
            const Clipped got = passes.run(rule, tile);
            EXPECT_LE(relative(got.norms, golden.norms), allowed);
            EXPECT_LE(relative(got.coefficients, golden.clip_coefficients), allowed);
            for (const auto& [name, expected] : golden.squared_norms)
              EXPECT_LE(
                  relative_to_layer(got.squared_norms.at(name), expected, norm_scales, name, dtype),
                  3 * allowed)
                  << name;
            ASSERT_EQ(got.sums.size(), golden.grad_clipped_sum.size());
            for (const auto& [name, expected] : golden.grad_clipped_sum)
              EXPECT_LE(relative_to_layer(got.sums.at(name), expected, sum_scales, name, dtype),
                        2 * allowed)
                  << name;
          }
        }
      }
    }
  }
}

TEST(ClippingGolden, NormsCoefficientsAndClippedSumsAreExactByEveryRule) {
  goldens_are_met(cpu_device());
}

TEST(GpuClippingGolden, NormsCoefficientsAndClippedSumsAreExactByEveryRule) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  goldens_are_met(gpu_device(0));
}

// Invariant 6 of docs/privacy.md: a sample that is not finite contributes exactly nothing, and
// leaves the others as they were.
TEST(Clipping, ASampleThatIsNotFiniteContributesNothing) {
  const LanguageGolden golden = language_goldens().front();
  const Model model = golden.model();
  TwoPasses passes(golden, model, at::kDouble, cpu_device());
  passes.poison(1);
  const Clipped got = passes.run(NormRule::ghost, 256);
  EXPECT_EQ(got.coefficients[1].item<double>(), 0);
  for (const auto& [name, sum] : got.sums) EXPECT_TRUE(sum.isfinite().all().item<bool>()) << name;
  for (int64_t i = 0; i < golden.norms.size(0); ++i) {
    if (i == 1) continue;
    EXPECT_NEAR(got.norms[i].item<double>(), golden.norms[i].item<double>(), 1e-9);
  }
}

}  // namespace
}  // namespace veil::privacy
