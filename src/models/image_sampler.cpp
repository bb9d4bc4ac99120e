#include "models/image_sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "base/error.h"
#include "kernels/random.h"
#include "models/dit.h"
#include "nn/noise_head.h"

namespace veil {
namespace {

class Sampling {
 public:
  Sampling(const Model& model, const DitConfig& config, const Params& params, DType compute,
           Device device, const std::vector<int64_t>& labels, const SamplerOptions& options)
      : model_(model),
        head_(dynamic_cast<const NoiseHead&>(*model.loss)),
        config_(config),
        params_(params),
        compute_(compute),
        device_(device),
        labels_(labels),
        options_(options),
        schedule_(noise_schedule(config)) {}

  Tensor run() {
    Tensor x = normal(0);
    for (int64_t i = options_.steps; i-- > 0;) {
      const int64_t t = timestep(i);
      const double kept = schedule_.kept[static_cast<size_t>(t)],
                   kept_before = i > 0 ? schedule_.kept[static_cast<size_t>(timestep(i - 1))] : 1;
      const Tensor noise = guided(x, t);
      const Tensor clean = ((x - noise * std::sqrt(1 - kept)) / std::sqrt(kept)).clamp_(-1, 1);
      if (options_.kind == SamplerKind::ddim) {
        const Tensor direction = (x - clean * std::sqrt(kept)) / std::sqrt(1 - kept);
        x = clean * std::sqrt(kept_before) + direction * std::sqrt(1 - kept_before);
      } else {
        const double alpha = kept / kept_before, beta = 1 - alpha;
        x = clean * (std::sqrt(kept_before) * beta / (1 - kept)) +
            x * (std::sqrt(alpha) * (1 - kept_before) / (1 - kept));
        if (i > 0) x += normal(i) * std::sqrt(beta * (1 - kept_before) / (1 - kept));
      }
      if (options_.on_step) options_.on_step(options_.steps - i);
    }
    return x;
  }

 private:
  // The i-th of the chosen timesteps; the last one is the schedule's.
  int64_t timestep(int64_t i) const {
    return options_.steps == 1 ? config_.timesteps - 1
                               : i * (config_.timesteps - 1) / (options_.steps - 1);
  }

  Tensor normal(int64_t step) const {
    const int64_t numel = config_.channels * config_.image_size * config_.image_size;
    const auto count = static_cast<int64_t>(labels_.size());
    const Tensor out = empty_tensor(
        {count, config_.channels, config_.image_size, config_.image_size}, at::kFloat, device_);
    // A place of its own for each image, however many there are.
    for (int64_t i = 0; i < count; ++i)
      fill_normal(out[i], 1, options_.seed, RandomDomain::inputs,
                  (i * (options_.steps + 1) + step) * numel);
    return out;
  }

  Tensor predicted(const Tensor& x, int64_t t, const std::vector<int64_t>& labels) const {
    std::vector<int64_t> conditions;
    for (const int64_t label : labels) conditions.push_back(config_.condition(t, label));
    Flow flow{x.to(compute_), at::tensor(conditions, at::kLong).to(device_)};
    for (const auto& block : model_.blocks) {
      Tape tape;
      flow = block->forward(params_, flow, tape);
    }
    return head_.predict(params_, flow).to(at::kFloat);
  }

  Tensor guided(const Tensor& x, int64_t t) const {
    if (options_.guidance == 1) return predicted(x, t, labels_);
    std::vector<int64_t> both = labels_;
    both.resize(2 * labels_.size(), config_.classes);
    const auto halves = predicted(at::cat({x, x}), t, both).chunk(2);
    return halves[1] + (halves[0] - halves[1]) * options_.guidance;
  }

  const Model& model_;
  const NoiseHead& head_;
  const DitConfig& config_;
  const Params& params_;
  DType compute_;
  Device device_;
  const std::vector<int64_t>& labels_;
  const SamplerOptions& options_;
  NoiseSchedule schedule_;
};

}  // namespace

const NameTable<SamplerKind>& names(SamplerKind) {
  static const NameTable<SamplerKind> table = {{SamplerKind::ddpm, "ddpm"},
                                               {SamplerKind::ddim, "ddim"}};
  return table;
}

void check_sampling(const DitConfig& config, const std::vector<int64_t>& labels,
                    const SamplerOptions& options) {
  for (const int64_t label : labels) {
    if (label < 0 || label > config.classes)
      user_error("label {}: the model has classes 0 to {}, and {} for none", label,
                 config.classes - 1, config.classes);
  }
  if (options.steps < 1 || options.steps > config.timesteps)
    user_error("{} sampling steps: allowed is 1 to {}", options.steps, config.timesteps);
}

Tensor sample_images(const Model& model, const DitConfig& config, const Params& params,
                     DType compute, Device device, const std::vector<int64_t>& labels,
                     const SamplerOptions& options) {
  VEIL_CHECK(!labels.empty(), "no images to sample");
  check_sampling(config, labels, options);
  return Sampling(model, config, params, compute, device, labels, options).run();
}

}  // namespace veil
