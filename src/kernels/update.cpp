#include "kernels/update.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <cstring>

#include "kernels/launch.h"
#include "kernels/seam.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// The CPU reference. Real: the arithmetic and the state.
template <typename Param, typename Grad, typename Real>
void update_cpu(Param* param, const Grad* grad, Real* state, int64_t numel, const UpdateKnobs& knobs,
                const UpdateRule& rule, int64_t first_index) {
  const UpdateFactors<Real> factors = update_factors<Real>(rule, knobs);
  at::parallel_for(0, numel, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Real unused_m = 0, unused_v = 0;
      Real& m = rule.kind == OptimizerKind::sgd ? unused_m : state[i];
      Real& v = rule.kind == OptimizerKind::adamw ? state[numel + i] : unused_v;
      const Real p = updated_param<Real>(factors, static_cast<Real>(param[i]), static_cast<Real>(grad[i]), m, v);
      if constexpr (std::is_same_v<Param, c10::BFloat16>) {
        uint32_t bits;
        std::memcpy(&bits, &p, sizeof bits);
        param[i] = c10::BFloat16(round_to_bf16_stochastically(bits, rounding_bits(rule, knobs, first_index + i)),
                                 c10::BFloat16::from_bits());
      } else {
        param[i] = p;
      }
    }
  });
}

}  // namespace

void update_shard(const Tensor& param, const Tensor& grad, const Tensor& state, const Tensor& knobs,
                  const UpdateRule& rule, int64_t first_index) {
  const int64_t numel = param.numel();
  const int states = rule.kind == OptimizerKind::sgd ? 0 : rule.kind == OptimizerKind::sgd_momentum ? 1 : 2;
  const DType real = param.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  VEIL_CHECK(param.is_contiguous() && grad.is_contiguous() && grad.numel() == numel, "update of {} elements by {}",
             numel, grad.numel());
  VEIL_CHECK(states == 0 || (state.is_contiguous() && state.numel() == states * numel && state.scalar_type() == real),
             "optimizer state does not fit");
  VEIL_CHECK(param.scalar_type() != at::kHalf, "fp16 parameters cannot be stored");
  if (param.is_cuda()) {
    launch::update({param.data_ptr(), element_of(param), grad.data_ptr(), element_of(grad),
                    states ? state.data_ptr() : nullptr, numel, knobs.data_ptr<double>(), rule, first_index,
                    Stream::current(param.device()).handle()});
    return;
  }
  const double* k = knobs.data_ptr<double>();
  const UpdateKnobs values{k[0], k[1], k[2], k[3], k[4]};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, grad.scalar_type(), "update_shard", [&] {
    const scalar_t* g = grad.data_ptr<scalar_t>();
    switch (param.scalar_type()) {
      case at::kDouble:
        return update_cpu(param.data_ptr<double>(), g, states ? state.data_ptr<double>() : nullptr, numel, values, rule,
                          first_index);
      case at::kFloat:
        return update_cpu(param.data_ptr<float>(), g, states ? state.data_ptr<float>() : nullptr, numel, values, rule,
                          first_index);
      default:
        return update_cpu(param.data_ptr<c10::BFloat16>(), g, states ? state.data_ptr<float>() : nullptr, numel, values,
                          rule, first_index);
    }
  });
}

}  // namespace veil
