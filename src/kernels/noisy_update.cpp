#include "kernels/noisy_update.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/launch.h"
#include "kernels/noise_range.h"
#include "kernels/tensor_arguments.h"
#include "kernels/update_reference.h"
#include "tensor/stream.h"

namespace veil {
namespace {

int64_t samples_of(const NoisyUpdate& of) {
  return of.coefficients.defined() ? of.coefficients.numel() : 0;
}

// The CPU reference. Real: the arithmetic.
template <typename Param, typename Grad, typename State, typename Real>
void noisy_update_cpu(const NoisyUpdate& of, const UpdateKnobs& knobs, const UpdateRule& rule,
                      const NoiseKnobs& noise, const NoiseSource& source) {
  const int64_t numel = of.param.numel(), samples = samples_of(of);
  const int64_t stride = samples ? of.grad.stride(0) : 0;
  const int64_t together = of.together > 0 ? of.together : std::max<int64_t>(1, samples);
  const double* c = samples ? of.coefficients.data_ptr<double>() : nullptr;
  const Grad* grad = of.grad.data_ptr<Grad>();
  Param* param = of.param.data_ptr<Param>();
  State *m = static_cast<State*>(pointer_or_null(of.m)),
        *v = static_cast<State*>(pointer_or_null(of.v));
  const NoiseKeys keys = noise_keys(source.generator, source.key);
  const UpdateReference<Real> reference(rule, knobs);
  at::parallel_for(0, numel, 1 << 13, [&](int64_t begin, int64_t end) {
    constexpr int64_t kChunk = 1024;
    Real sum[kChunk], part[kChunk];
    for (int64_t i = begin, count = 0; i < end; i += count) {
      // Chunks end where groups of noise do.
      count = std::min(end - i, kChunk - (of.first_element + i) % kChunk);
      if (c) {
        std::fill_n(sum, count, Real{0});
      } else {
        for (int64_t k = 0; k < count; ++k) sum[k] = static_cast<Real>(grad[i + k]);
      }
      for (int64_t first = 0; first < samples; first += together) {
        Real* const to = first == 0 ? sum : part;
        if (to == part) std::fill_n(part, count, Real{0});
        for (int64_t s = first; s < std::min(first + together, samples); ++s) {
          const auto factor = static_cast<Real>(c[s]);
          if (factor == 0) continue;
          const Grad* row = grad + s * stride + i;
          for (int64_t k = 0; k < count; ++k) to[k] += factor * static_cast<Real>(row[k]);
        }
        for (int64_t k = 0; to == part && k < count; ++k) sum[k] += part[k];
      }
      add_noise_range(keys, noise, of.parameter, of.first_element + i, count, sum);
      reference.update(of.first_index + i, count, param + i, sum, m ? m + i : nullptr,
                       v ? v + i : nullptr);
    }
  });
}

bool has_narrow_moments(const NoisyUpdate& of) {
  return of.m.defined() && of.m.scalar_type() == at::kBFloat16 &&
         real_of(of.param.scalar_type()) == at::kFloat;
}

void expect_fits(const NoisyUpdate& of, const UpdateRule& rule) {
  const int64_t numel = of.param.numel(), samples = samples_of(of);
  VEIL_CHECK(of.param.is_contiguous() && of.param.scalar_type() != at::kHalf,
             "a noisy update of strided parameters");
  VEIL_CHECK(of.coefficients.defined()
                 ? samples > 0 && of.grad.dim() == 2 && of.grad.stride(1) == 1 &&
                       of.grad.size(0) == samples && of.grad.size(1) == numel &&
                       fits(of.coefficients, at::kDouble, samples)
                 : fits(of.grad, of.grad.scalar_type(), numel),
             "a noisy update of {} elements by {}", numel, of.grad.numel());
  const DType state = has_narrow_moments(of) ? at::kBFloat16 : real_of(of.param.scalar_type());
  VEIL_CHECK(absent_or_fits(of.m, state, numel) && absent_or_fits(of.v, state, numel) &&
                 of.m.defined() == (rule.kind != OptimizerKind::sgd) &&
                 of.v.defined() == (rule.kind == OptimizerKind::adamw),
             "optimizer state does not fit");
  VEIL_CHECK((of.first_element + numel) / kNoiseGroup < kNoiseGroups,
             "noise for {} elements from {}", numel, of.first_element);
}

launch::NoisyUpdate on_device(const NoisyUpdate& of, const Tensor& knobs, const UpdateRule& rule,
                              const Tensor& noise_knobs, const NoiseSource& source) {
  const int64_t samples = samples_of(of);
  return {of.param.data_ptr(),
          element_of(of.param),
          pointer_or_null(of.m),
          pointer_or_null(of.v),
          has_narrow_moments(of) ? Element::bf16 : Element::fp32,
          of.grad.data_ptr(),
          element_of(of.grad),
          samples,
          samples ? of.grad.stride(0) : 0,
          static_cast<const double*>(pointer_or_null(of.coefficients)),
          of.param.numel(),
          knobs_at<UpdateKnobs>(knobs),
          rule,
          of.first_index,
          knobs_at<NoiseKnobs>(noise_knobs),
          noise_keys(source.generator, source.key),
          of.parameter,
          of.first_element,
          Stream::current(of.param.device()).handle()};
}

// Whether one launch can take both.
bool alike(const launch::NoisyUpdate& a, const launch::NoisyUpdate& b) {
  return a.param_element == b.param_element && a.state_element == b.state_element &&
         a.grad_element == b.grad_element && a.samples == b.samples && a.stride == b.stride &&
         a.coefficients == b.coefficients && a.stream == b.stream;
}

void launch_updates(NoiseGenerator generator, const launch::NoisyUpdates& updates) {
  switch (generator) {
    case NoiseGenerator::secure:
      return launch::noisy_update_secure(updates);
    case NoiseGenerator::hardened:
      return launch::noisy_update_hardened(updates);
    case NoiseGenerator::philox:
      return launch::noisy_update_philox(updates);
  }
}

void run_on_cpu(const NoisyUpdate& of, const Tensor& knobs, const UpdateRule& rule,
                const Tensor& noise_knobs, const NoiseSource& source) {
  const UpdateKnobs values = *knobs_at<UpdateKnobs>(knobs);
  const NoiseKnobs noise = *knobs_at<NoiseKnobs>(noise_knobs);
  VEIL_CHECK(
      noise.step >= 0 && noise.step < static_cast<double>(kNoiseSteps) && noise.deviation >= 0,
      "noise of deviation {} at step {}", noise.deviation, noise.step);
  const bool narrow = has_narrow_moments(of);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, of.grad.scalar_type(), "noisy_update", [&] {
        switch (of.param.scalar_type()) {
          case at::kDouble:
            return noisy_update_cpu<double, scalar_t, double, double>(of, values, rule, noise,
                                                                      source);
          case at::kFloat:
            return narrow ? noisy_update_cpu<float, scalar_t, c10::BFloat16, float>(
                                of, values, rule, noise, source)
                          : noisy_update_cpu<float, scalar_t, float, float>(of, values, rule, noise,
                                                                            source);
          default:
            return narrow ? noisy_update_cpu<c10::BFloat16, scalar_t, c10::BFloat16, float>(
                                of, values, rule, noise, source)
                          : noisy_update_cpu<c10::BFloat16, scalar_t, float, float>(
                                of, values, rule, noise, source);
        }
      });
}

}  // namespace

void noisy_update(const std::vector<NoisyUpdate>& ranges, const Tensor& knobs,
                  const UpdateRule& rule, const Tensor& noise_knobs, const NoiseSource& source) {
  std::vector<launch::NoisyUpdate> left;
  for (const NoisyUpdate& of : ranges) {
    expect_fits(of, rule);
    if (!of.param.is_cuda()) {
      run_on_cpu(of, knobs, rule, noise_knobs, source);
    } else if (of.param.numel() > 0) {
      left.push_back(on_device(of, knobs, rule, noise_knobs, source));
    }
  }
  while (!left.empty()) {
    const auto others = std::stable_partition(
        left.begin(), left.end(),
        [like = left.front()](const launch::NoisyUpdate& update) { return alike(update, like); });
    launch_updates(source.generator, {left.begin(), others});
    left.erase(left.begin(), others);
  }
}

void noisy_update(const NoisyUpdate& of, const Tensor& knobs, const UpdateRule& rule,
                  const Tensor& noise_knobs, const NoiseSource& source) {
  noisy_update(std::vector<NoisyUpdate>{of}, knobs, rule, noise_knobs, source);
}

}  // namespace veil
