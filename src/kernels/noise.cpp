#include "kernels/noise.h"

#include <ATen/Parallel.h>

#include "kernels/launch.h"
#include "kernels/noise_range.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {
namespace {

template <typename Real>
void add_cpu(Real* out, int64_t numel, const NoiseKnobs& knobs, const NoiseSource& source,
             uint32_t parameter, int64_t first_element) {
  const NoiseKeys keys = noise_keys(source.generator, source.key);
  at::parallel_for(0, numel, 1 << 13, [&](int64_t begin, int64_t end) {
    add_noise_range(keys, knobs, parameter, first_element + begin, end - begin, out + begin);
  });
}

void check_range(const Tensor& out, int64_t first_element) {
  VEIL_CHECK(
      out.is_contiguous() && (out.scalar_type() == at::kFloat || out.scalar_type() == at::kDouble),
      "noise on a strided tensor or on {}", c10::toString(out.scalar_type()));
  VEIL_CHECK(first_element >= 0 && (first_element + out.numel()) / kNoiseGroup < kNoiseGroups,
             "noise for {} elements from {}", out.numel(), first_element);
}

void check_knobs(const NoiseKnobs& knobs) {
  VEIL_CHECK(
      knobs.step >= 0 && knobs.step < static_cast<double>(kNoiseSteps) && knobs.deviation >= 0,
      "noise of deviation {} at step {}", knobs.deviation, knobs.step);
}

void add_on_cpu(const Tensor& out, const NoiseKnobs& knobs, const NoiseSource& source,
                uint32_t parameter, int64_t first_element) {
  check_knobs(knobs);
  if (out.scalar_type() == at::kFloat) {
    add_cpu(out.data_ptr<float>(), out.numel(), knobs, source, parameter, first_element);
  } else {
    add_cpu(out.data_ptr<double>(), out.numel(), knobs, source, parameter, first_element);
  }
}

void add_on_gpu(const Tensor& out, const NoiseKnobs* at, const NoiseKnobs& knobs,
                const NoiseSource& source, uint32_t parameter, int64_t first_element) {
  launch::add_noise({out.data_ptr(), element_of(out), out.numel(), at, knobs,
                     noise_keys(source.generator, source.key), parameter, first_element,
                     Stream::current(out.device()).handle()});
}

}  // namespace

const NameTable<NoiseGenerator>& names(NoiseGenerator) {
  static const NameTable<NoiseGenerator> table = {
      {NoiseGenerator::secure, "secure", {"chacha", "chacha20"}},
      {NoiseGenerator::philox, "philox"},
      {NoiseGenerator::hardened, "hardened"}};
  return table;
}

void add_noise(const Tensor& out, const NoiseKnobs& knobs, const NoiseSource& source,
               uint32_t parameter, int64_t first_element) {
  check_range(out, first_element);
  check_knobs(knobs);
  if (out.is_cuda()) return add_on_gpu(out, nullptr, knobs, source, parameter, first_element);
  add_on_cpu(out, knobs, source, parameter, first_element);
}

void add_noise(const Tensor& out, const Tensor& knobs, const NoiseSource& source,
               uint32_t parameter, int64_t first_element) {
  check_range(out, first_element);
  VEIL_CHECK(knobs.device() == out.device(), "noise knobs that lie elsewhere");
  const NoiseKnobs* at = knobs_at<NoiseKnobs>(knobs);
  if (out.is_cuda()) return add_on_gpu(out, at, {}, source, parameter, first_element);
  add_on_cpu(out, *at, source, parameter, first_element);
}

}  // namespace veil
