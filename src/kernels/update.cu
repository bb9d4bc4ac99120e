#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/launch.h"
#include "kernels/launch_check.h"

namespace veil::launch {
namespace {

__device__ inline void store(float* at, float value, uint32_t) {
  *at = value;
}
__device__ inline void store(double* at, double value, uint32_t) {
  *at = value;
}
__device__ inline void store(__nv_bfloat16* at, float value, uint32_t random) {
  *at = __ushort_as_bfloat16(round_to_bf16_stochastically(__float_as_uint(value), random));
}

template <typename Param, typename Grad, typename Real>
__global__ void update_kernel(Param* param, const Grad* grad, Real* state, int64_t numel, const double* knobs_at,
                              UpdateRule rule, int64_t first_index) {
  const UpdateKnobs knobs = *reinterpret_cast<const UpdateKnobs*>(knobs_at);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += stride) {
    Real m = 0, v = 0;
    if (rule.kind != OptimizerKind::sgd) m = state[i];
    if (rule.kind == OptimizerKind::adamw) v = state[numel + i];
    const Real p = updated_param<Real>(rule, knobs, static_cast<Real>(param[i]), static_cast<Real>(grad[i]), m, v);
    if (rule.kind != OptimizerKind::sgd) state[i] = m;
    if (rule.kind == OptimizerKind::adamw) state[numel + i] = v;
    store(param + i, p, sizeof(Param) == 2 ? rounding_bits(rule, knobs, first_index + i) : 0);
  }
}

template <typename Param, typename Grad, typename Real>
void run(const Update& u) {
  const int threads = 256;
  const int64_t blocks = (u.numel + threads - 1) / threads;
  update_kernel<Param, Grad, Real>
      <<<static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64), threads, 0,
         static_cast<cudaStream_t>(u.stream)>>>(static_cast<Param*>(u.param), static_cast<const Grad*>(u.grad),
                                                static_cast<Real*>(u.state), u.numel, u.knobs, u.rule, u.first_index);
  check_launch("update");
}

template <typename Grad>
void run_for_grad(const Update& u) {
  switch (u.param_element) {
    case Element::fp32:
      return run<float, Grad, float>(u);
    case Element::fp64:
      return run<double, Grad, double>(u);
    default:
      return run<__nv_bfloat16, Grad, float>(u);
  }
}

}  // namespace

void update(const Update& u) {
  if (u.numel == 0) return;
  switch (u.grad_element) {
    case Element::fp32:
      return run_for_grad<float>(u);
    case Element::fp64:
      return run_for_grad<double>(u);
    case Element::bf16:
      return run_for_grad<__nv_bfloat16>(u);
    case Element::fp16:
      return run_for_grad<__half>(u);
  }
}

}  // namespace veil::launch
