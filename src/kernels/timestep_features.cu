#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

struct Features {
  const int64_t* condition;
  int64_t labels;
  void* out;
  int64_t* ids;
  int64_t batch, width;
  cudaStream_t stream;
};

// A block per sample.
template <typename T>
__global__ void timestep_features_kernel(Features f) {
  const int64_t i = blockIdx.x, half = f.width / 2, code = f.condition[i];
  const auto timestep = static_cast<double>(code / f.labels);
  if (threadIdx.x == 0) f.ids[i] = code % f.labels;
  T* out = static_cast<T*>(f.out) + i * f.width;
  for (int64_t k = threadIdx.x; k < half; k += blockDim.x) {
    const double angle =
        timestep * exp(-log(10000.0) * static_cast<double>(k) / static_cast<double>(half));
    out[k] = static_cast<T>(cos(angle));
    out[half + k] = static_cast<T>(sin(angle));
  }
}

template <typename T>
struct Run {
  static void run(const Features& f) {
    timestep_features_kernel<T><<<static_cast<unsigned>(f.batch), 128, 0, f.stream>>>(f);
    check_launch("timestep_features");
  }
};

}  // namespace

void timestep_features(const int64_t* condition, int64_t labels, void* features, Element element,
                       int64_t* ids, int64_t batch, int64_t width, void* stream) {
  for_element<Run>(element, Features{condition, labels, features, ids, batch, width,
                                     static_cast<cudaStream_t>(stream)});
}

}  // namespace veil::launch
