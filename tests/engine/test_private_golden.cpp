#include "engine/test_private_golden.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "privacy/sampler.h"

namespace veil {
namespace {

double largest(const Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

// The rows of a batch that are dealt to a rank; padding repeats the first sample and does not
// count.
Batch rows_of(const Batch& all, const std::vector<int64_t>& samples, DType dtype) {
  Tensor index = empty_tensor({static_cast<int64_t>(samples.size())}, at::kLong, cpu_device());
  Tensor counted = empty_tensor({static_cast<int64_t>(samples.size())}, at::kByte, cpu_device());
  for (size_t i = 0; i < samples.size(); ++i) {
    index.data_ptr<int64_t>()[i] = std::max<int64_t>(0, samples[i]);
    counted.data_ptr<uint8_t>()[i] = samples[i] != data::kNoSample;
  }
  Batch rows = all.each([&](const Tensor& t) {
    return at::index_select(t, 0, index).to(t.is_floating_point() ? dtype : t.scalar_type());
  });
  rows.counted = counted;
  return rows;
}

template <typename Golden>
PrivateGolden common(const Golden& golden) {
  PrivateGolden found;
  found.name = golden.name;
  found.batch = golden.batch;
  found.clip_norm = golden.clip_norm;
  found.norms = golden.norms;
  found.clip_coefficients = golden.clip_coefficients;
  found.grad_sum = golden.grad_sum;
  found.squared_norms = golden.squared_norms;
  found.grad_clipped_sum = golden.grad_clipped_sum;
  return found;
}

}  // namespace

std::vector<PrivateGolden> private_goldens() {
  std::vector<PrivateGolden> all;
  for (const LanguageGolden& golden : language_goldens()) {
    all.push_back(common(golden));
    all.back().model = [golden] { return golden.model(); };
    all.back().weights = [golden](const Model& model) {
      return load_weights(golden.weight_files.front(), golden.config, model.params);
    };
  }
  for (const LoraGolden& lora : lora_goldens()) {
    all.push_back(common(lora.golden));
    all.back().name = "lora/" + lora.golden.name;
    all.back().fp32_allowed = 3e-5;
    all.back().model = [lora] { return lora.model(); };
    all.back().weights = [lora](const Model& model) { return lora.weights(model); };
  }
  for (const DiffusionGolden& golden : diffusion_goldens()) {
    all.push_back(common(golden));
    all.back().model = [golden] { return dit_model(golden.config); };
    all.back().weights = [golden](const Model& model) {
      return load_weights(golden.folder, model.params);
    };
  }
  return all;
}

std::string GoldenSetting::name() const {
  return fmt::format("{} {} tile {} {} exchange {} {}{}", name_of(pass), name_of(rule), tile,
                     name_of(strategy), name_of(exchange), dtype_name(dtype),
                     single ? " one sample at a time" : "");
}

void expect_private_golden(const PrivateGolden& golden, const GoldenSetting& setting,
                           double allowed, int world, Ranks ranks) {
  SCOPED_TRACE(golden.name + " " + setting.name());
  const Model model = golden.model();
  const int64_t samples = golden.batch.inputs.size(0),
                batch = setting.single ? 1 : (samples + world - 1) / world;
  std::vector<int64_t> all;
  for (int64_t i = 0; i < samples; ++i) all.push_back(i);
  const privacy::Deal deal = privacy::deal_out(all, batch, ranks.rank(), world);
  const InitialWeights initial = golden.weights(model);
  const bool by_layer = setting.pass == privacy::PassKind::per_layer;
  const ModelShape shape = model.shape(batch, setting.dtype, /*on_gpu=*/false);

  ExecutorOptions options;
  options.step.storage = options.step.compute = options.step.reduce = setting.dtype;
  options.step.strategy = setting.strategy;
  options.step.world = world;
  options.step.varying = true;
  options.step.exchange = setting.exchange;
  options.step.clip = privacy::uniform_method(shape, setting.pass, setting.rule);
  options.step.clip->tile = setting.tile;
  options.initial = initial.fill;
  options.privacy.emplace();
  if (by_layer) {
    options.privacy->clip = privacy::ClipFunction::per_layer;
    options.privacy->clip_norms.assign(static_cast<size_t>(privacy::clip_layers(shape, true).count),
                                       std::numeric_limits<double>::infinity());
  } else {
    options.privacy->clip_norms = {golden.clip_norm};
  }
  const Batch own = rows_of(golden.batch, deal.samples, setting.dtype);
  Executor executor(model, batch, options, cpu_device(), own, std::move(ranks));
  executor.prepare();
  if (setting.exchange == Exchange::kept && setting.pass == privacy::PassKind::keep) {
    EXPECT_EQ(executor.schedule().exchanges(), world > 1 && setting.strategy != Strategy::ddp);
  }

  const auto& expected_sums = by_layer ? golden.grad_sum : golden.grad_clipped_sum;
  const LayerScales norm_scales(golden.squared_norms), sum_scales(expected_sums);
  for (int64_t m = 0; m < deal.micro_batches; ++m) {
    executor.load(own.narrow(m * batch, batch));
    executor.gradients();
    const Tensor squared = executor.squared_norms(), coefficients = executor.coefficients();
    for (int64_t i = 0; i < batch; ++i) {
      const int64_t sample = deal.samples[static_cast<size_t>(m * batch + i)];
      if (sample == data::kNoSample) {
        EXPECT_EQ(coefficients[0][i].item<double>(), 0) << "padding at " << i;
        continue;
      }
      double whole = 0;
      for (size_t p = 0; p < model.params.size(); ++p) {
        const double mine = squared[static_cast<int64_t>(p)][i].item<double>();
        const Tensor& expected = golden.squared_norms.at(model.params[p].name);
        EXPECT_NEAR(mine, expected[sample].item<double>(),
                    3 * allowed * norm_scales.of(model.params[p].name, setting.dtype))
            << model.params[p].name << " of sample " << sample;
        whole += mine;
      }
      EXPECT_NEAR(std::sqrt(whole), golden.norms[sample].item<double>(),
                  allowed * largest(golden.norms))
          << sample;
      const double c = by_layer ? 1 : golden.clip_coefficients[sample].item<double>();
      EXPECT_NEAR(coefficients[0][i].item<double>(), c, allowed) << "of sample " << sample;
    }
  }
  executor.load(own);
  const std::vector<Tensor> sums = executor.gradients();
  for (size_t p = 0; p < sums.size(); ++p) {
    const std::string& name = model.params[p].name;
    EXPECT_LE(relative_to_layer(sums[p], expected_sums.at(name), sum_scales, name, setting.dtype),
              2 * allowed)
        << name;
  }
}

}  // namespace veil
