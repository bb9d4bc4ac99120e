#include "verify/verify_reference.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "estimate/estimator.h"
#include "run/machine.h"

namespace veil {
namespace {

// One sample in fp64, on one rank.
RunConfig reference_config() {
  RunConfig config;
  config.step.strategy = Strategy::ddp;
  config.step.storage = config.step.compute = config.step.reduce = Precision::fp64;
  config.measure.profile = {ProfileKind::none};
  return config;
}

// Five copies in addition to the step: parameters, plain and clipped sums, the padding sample's
// gradient, the one that is at hand.
void check_memory(const Model& model, Device device, int ranks_here) {
  const ModelShape shape = model.shape(1, at::kDouble, device.is_cuda());
  const int64_t step =
      estimate_memory(build_schedule(shape, step_options(reference_config(), 1, device.is_cuda())))
          .peak(space_of(device))
          .total();
  const int64_t host = (5 * 8 * shape.param_count() + (device.is_cuda() ? 0 : step)) * ranks_here;
  const Machine machine = this_machine();
  if (host > machine.memory_bytes) {
    user_error(
        "{}: its reference in fp64 takes {} of host memory, and this machine has {}; pass a "
        "smaller `model` or fewer `layers`",
        model.name, format_bytes(host), format_bytes(machine.memory_bytes));
  }
}

// The parameters as they are stored, made once.
std::vector<Tensor> stored_params(const VerifyOptions& options, const Model& model,
                                  const ModelSource& source, const Batch& sample, Device device) {
  RunConfig config = options.config;
  config.step.strategy = Strategy::ddp;
  config.step.accumulation = 1;
  config.privacy.method.mode = Mode::no_dp;
  config.measure.profile = {ProfileKind::none};
  ExecutorOptions settings = executor_options(config, 1, device);
  settings.initial = initial_weights(source, model).fill;
  Executor executor(model, 1, settings, device,
                    sample.each([&](const Tensor& t) { return t.to(device); }), {});
  std::vector<Tensor> params;
  for (size_t p = 0; p < model.params.size(); ++p)
    params.push_back(executor.parameter(static_cast<ParamId>(p)));
  return params;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 1 : values[values.size() / 2];
}

// Written apart from the kernel, so that a mistake in one of them shows.
double coefficient(privacy::ClipFunction clip, double squared, double clip_norm) {
  const double norm = std::sqrt(squared);
  if (clip == privacy::ClipFunction::automatic) return clip_norm / (norm + 0.01);
  if (clip == privacy::ClipFunction::psac) return clip_norm / (norm + 0.01 / (norm + 0.01));
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

}  // namespace

std::function<bool(ParamId, int64_t first, const Tensor& out)> initial_from(
    const std::vector<Tensor>& params) {
  return [&params](ParamId id, int64_t first, const Tensor& out) {
    out.copy_(params[static_cast<size_t>(id)].view({-1}).narrow(0, first, out.numel()));
    return true;
  };
}

VerifyReference verify_reference(const VerifyOptions& options, const Model& model,
                                 const ModelSource& source, const VerifySamples& samples,
                                 Device device, int ranks_here) {
  check_memory(model, device, ranks_here);
  auto one = [&](int64_t i) {
    return samples.batch.narrow(i, 1).each(
        [](const Tensor& t) { return t.is_floating_point() ? t.to(at::kDouble) : t; });
  };
  VerifyReference reference;
  reference.params = stored_params(options, model, source, samples.batch.narrow(0, 1), device);
  const int64_t count = samples.batch.inputs.size(0);
  const size_t params = model.params.size();

  ExecutorOptions settings = executor_options(reference_config(), 1, device);
  settings.initial = initial_from(reference.params);
  const Batch first = one(0);  // copied: loading a sample overwrites it
  Executor executor(model, 1, settings, device,
                    first.each([&](const Tensor& t) { return t.clone().to(device); }), {});
  auto gradient = [&](int64_t i) {
    executor.load(one(i));
    return executor.gradients();
  };

  reference.squared = at::zeros({static_cast<int64_t>(params), count}, at::kDouble);
  auto squared = reference.squared.accessor<double, 2>();
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<Tensor> grads = gradient(i);
    for (size_t p = 0; p < params; ++p)
      squared[static_cast<int64_t>(p)][i] = grads[p].square().sum().item<double>();
  }
  auto counts = [&](int64_t i) { return count == 1 || i + 1 < count; };
  const ModelShape shape = model.shape(1, at::kDouble, device.is_cuda());
  const privacy::ClipLayers layers =
      privacy::clip_layers(shape, options.config.privacy.clip == privacy::ClipFunction::per_layer);
  double clip_norm = options.config.privacy.clip_norm.value_or(0);
  if (clip_norm == 0) {
    std::vector<double> norms;
    for (int64_t i = 0; i < count; ++i) {
      if (counts(i))
        norms.push_back(std::sqrt(reference.squared.select(1, i).sum().item<double>()));
    }
    clip_norm = median(norms);
  }
  reference.clip_norms = privacy::equal_layer_norms(clip_norm, layers.count);
  reference.coefficients = at::zeros({layers.count, count}, at::kDouble);
  auto coefficients = reference.coefficients.accessor<double, 2>();
  for (size_t p = 0; p < params; ++p) {
    reference.clipped.push_back(at::zeros(model.params[p].dims, at::kDouble));
    reference.plain.push_back(at::zeros_like(reference.clipped.back()));
    reference.uncounted.push_back(at::zeros_like(reference.clipped.back()));
  }
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double> of_layer(static_cast<size_t>(layers.count), 0.0);
    for (size_t p = 0; p < params; ++p)
      of_layer[static_cast<size_t>(layers.of_param[p])] += squared[static_cast<int64_t>(p)][i];
    const std::vector<Tensor> grads = gradient(i);
    for (size_t p = 0; p < params; ++p) {
      const auto layer = static_cast<size_t>(layers.of_param[p]);
      const double c =
          coefficient(options.config.privacy.clip, of_layer[layer], reference.clip_norms[layer]);
      (counts(i) ? reference.clipped : reference.uncounted)[p].add_(grads[p], c);
      reference.plain[p].add_(grads[p]);
      if (counts(i)) coefficients[static_cast<int64_t>(layer)][i] = c;
    }
  }
  return reference;
}

}  // namespace veil
