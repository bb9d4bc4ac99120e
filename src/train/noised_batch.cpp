#include "train/noised_batch.h"

#include <ATen/TensorOperators.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "data/order.h"
#include "kernels/philox.h"
#include "kernels/random.h"
#include "tensor/category.h"

namespace veil {
namespace {

// keeps these draws apart from everything else of the seed
constexpr uint64_t kChoices = uint64_t{7} << 56;

}  // namespace

Batch noised_batch(const DitConfig& config, const NoiseSchedule& schedule,
                   const std::vector<float>& pixels, const std::vector<int64_t>& samples,
                   const std::vector<int64_t>& labels, int64_t sample_count, int64_t step,
                   const NoisedOptions& options, DType compute, Device device) {
  CategoryScope scope(Category::data);
  const auto rows = static_cast<int64_t>(samples.size());
  const std::vector<int64_t> dims{rows, config.channels, config.image_size, config.image_size};
  const Tensor host = empty_tensor(dims, at::kFloat, cpu_device());
  VEIL_CHECK(static_cast<int64_t>(pixels.size()) == host.numel(), "{} pixels for {} samples",
             pixels.size(), rows);
  if (rows > 0) std::memcpy(host.data_ptr<float>(), pixels.data(), pixels.size() * sizeof(float));
  const Tensor images = host.to(device), noise = empty_tensor(dims, at::kFloat, device);
  const Tensor conditions = empty_tensor({rows}, at::kLong, cpu_device());
  const int64_t numel = rows ? host.numel() / rows : 0;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t sample = samples[static_cast<size_t>(i)];
    if (sample == data::kNoSample) {
      conditions.data_ptr<int64_t>()[i] = config.condition(0, config.classes);
      noise[i].zero_();
      continue;
    }
    const Philox4 words = philox4x32(options.seed, static_cast<uint64_t>(sample),
                                     kChoices | static_cast<uint64_t>(step));
    const auto timestep = static_cast<int64_t>(
        (static_cast<uint64_t>(words.word[0]) * static_cast<uint64_t>(config.timesteps)) >> 32);
    const bool dropped = std::ldexp(static_cast<double>(words.word[1]), -32) < options.label_drop;
    const int64_t label = labels[static_cast<size_t>(i)];
    VEIL_CHECK(label >= 0 && label < config.classes, "label {} of {} classes", label,
               config.classes);
    conditions.data_ptr<int64_t>()[i] =
        config.condition(timestep, dropped ? config.classes : label);
    fill_normal(noise[i], 1, options.seed, RandomDomain::targets,
                (step * sample_count + sample) * numel);
    images[i].mul_(schedule.signal(timestep)).add_(noise[i], schedule.noise(timestep));
  }
  Batch batch{images.to(compute), noise.to(compute), {}, conditions.to(device)};
  synchronize(device);  // the executor reads it on a stream of its own
  return batch;
}

}  // namespace veil
