#include "kernels/launch_decode.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 64;

__device__ __forceinline__ void angle_of(double angle, double& sine, double& cosine) {
  sincos(angle, &sine, &cosine);
}
__device__ __forceinline__ void angle_of(double angle, float& sine, float& cosine) {
  const double turns = angle * 0.15915494309189535;  // 1 / (2 pi)
  sincospif(static_cast<float>(2 * (turns - rint(turns))), &sine, &cosine);
}

// One block per head of a sample. The first elements make pairs that are turned, the others are
// only copied.
template <typename T>
__global__ void __launch_bounds__(kThreads) cache_append_kernel(CacheAppend a) {
  using Real = RealOf<T>;
  const int64_t sample = blockIdx.y, head = blockIdx.x;
  const int64_t position = a.positions[sample];
  if (position < 0 || position >= a.capacity) return;
  T* const from =
      static_cast<T*>(a.qkv) + (sample * (a.heads + 2 * a.kv_heads) + head) * a.head_dim;
  const bool is_query = head < a.heads, is_key = !is_query && head < a.heads + a.kv_heads;
  T* to = from;
  if (!is_query) {
    const int64_t own = head - a.heads - (is_key ? 0 : a.kv_heads);
    to = static_cast<T*>(is_key ? a.keys : a.values) +
         ((sample * a.capacity + position) * a.kv_heads + own) * a.head_dim;
  }
  const int pairs = is_query || is_key ? a.frequencies.count : 0;
  for (int j = threadIdx.x; j < pairs; j += kThreads) {
    const Real x = real(from[j]), y = real(from[pairs + j]);
    Real sine, cosine;
    angle_of(static_cast<double>(position) * a.frequencies.value[j], sine, cosine);
    sine *= static_cast<Real>(a.frequencies.scale);
    cosine *= static_cast<Real>(a.frequencies.scale);
    to[j] = rounded<T>(x * cosine - y * sine);
    to[pairs + j] = rounded<T>(y * cosine + x * sine);
  }
  if (is_query) return;
  for (int j = 2 * pairs + threadIdx.x; j < a.head_dim; j += kThreads) to[j] = from[j];
}

template <typename T>
struct Append {
  static void run(const CacheAppend& a) {
    const dim3 grid(static_cast<unsigned>(a.heads + 2 * a.kv_heads),
                    static_cast<unsigned>(a.batch));
    cache_append_kernel<T><<<grid, kThreads, 0, static_cast<cudaStream_t>(a.stream)>>>(a);
    check_launch("cache_append");
  }
};

}  // namespace

void cache_append(const CacheAppend& append) {
  for_element<Append>(append.element, append);
}

}  // namespace veil::launch
