#include "kernels/update.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "kernels/update_reference.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Real: the arithmetic.
template <typename Param, typename Grad, typename State, typename Real>
void update_cpu(const Tensor& param_at, const Tensor& grad_at, const Tensor& state_at,
                const UpdateKnobs& knobs, const UpdateRule& rule, int64_t first_index) {
  const int64_t numel = param_at.numel();
  Param* param = param_at.data_ptr<Param>();
  const Grad* grad = grad_at.data_ptr<Grad>();
  State* m = rule.kind == OptimizerKind::sgd ? nullptr : state_at.data_ptr<State>();
  State* v = rule.kind == OptimizerKind::adamw ? m + numel : nullptr;
  const UpdateReference<Real> reference(rule, knobs);
  at::parallel_for(0, numel, 1 << 14, [&](int64_t begin, int64_t end) {
    constexpr int64_t kChunk = 1024;
    Real wide[kChunk];
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t count = std::min(kChunk, end - i);
      for (int64_t k = 0; k < count; ++k) wide[k] = static_cast<Real>(grad[i + k]);
      reference.update(first_index + i, count, param + i, wide, m ? m + i : nullptr,
                       v ? v + i : nullptr);
    }
  });
}

}  // namespace

void update_shard(const Tensor& param, const Tensor& grad, const Tensor& state, const Tensor& knobs,
                  const UpdateRule& rule, int64_t first_index) {
  const int64_t numel = param.numel();
  const int states = rule.kind == OptimizerKind::sgd            ? 0
                     : rule.kind == OptimizerKind::sgd_momentum ? 1
                                                                : 2;
  const DType real = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  VEIL_CHECK(param.is_contiguous() && grad.is_contiguous() && grad.numel() == numel,
             "update of {} elements by {}", numel, grad.numel());
  const bool narrow = states > 0 && state.scalar_type() == at::kBFloat16 && real == at::kFloat;
  VEIL_CHECK(states == 0 || (state.is_contiguous() && state.numel() == states * numel &&
                             (narrow || state.scalar_type() == real)),
             "optimizer state does not fit");
  VEIL_CHECK(param.scalar_type() != at::kHalf, "fp16 parameters cannot be stored");
  if (param.is_cuda()) {
    launch::update({param.data_ptr(), element_of(param), grad.data_ptr(), element_of(grad),
                    states ? state.data_ptr() : nullptr, states ? element_of(state) : Element::fp32,
                    numel, knobs_at<UpdateKnobs>(knobs), rule, first_index,
                    Stream::current(param.device()).handle()});
    return;
  }
  const UpdateKnobs values = *knobs_at<UpdateKnobs>(knobs);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, grad.scalar_type(), "update_shard", [&] {
        switch (param.scalar_type()) {
          case at::kDouble:
            return update_cpu<double, scalar_t, double, double>(param, grad, state, values, rule,
                                                                first_index);
          case at::kFloat:
            return narrow ? update_cpu<float, scalar_t, c10::BFloat16, float>(
                                param, grad, state, values, rule, first_index)
                          : update_cpu<float, scalar_t, float, float>(param, grad, state, values,
                                                                      rule, first_index);
          default:
            return narrow ? update_cpu<c10::BFloat16, scalar_t, c10::BFloat16, float>(
                                param, grad, state, values, rule, first_index)
                          : update_cpu<c10::BFloat16, scalar_t, float, float>(
                                param, grad, state, values, rule, first_index);
        }
      });
}

}  // namespace veil
