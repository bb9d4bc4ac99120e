#include "kernels/clip_scale_rule.h"
#include "kernels/launch.h"
#include "kernels/launch_check.h"

namespace veil::launch {
namespace {

__global__ void clip_scale_kernel(double* scale, const double* squared_norm, const double* max_norm) {
  *scale = clipped_scale(*scale, *squared_norm, *max_norm);
}

}  // namespace

void clip_scale(double* scale, const double* squared_norm, const double* max_norm, void* stream) {
  clip_scale_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(scale, squared_norm, max_norm);
  check_launch("clip_scale");
}

}  // namespace veil::launch
