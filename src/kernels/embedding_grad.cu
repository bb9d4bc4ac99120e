#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 8;  // rows read before the first is added

// A block for each place in a table's sorted order and each strip of columns; only the first place
// of an id works, and adds all rows of it in order.
template <typename T, typename Out, int kWide>
__global__ void embedding_grad_kernel(EmbeddingGrad e) {
  using Real = RealOf<T>;
  const int64_t table = blockIdx.x / e.count, begin = blockIdx.x % e.count;
  e.ids += table * e.count;
  e.positions += table * e.count;
  const int64_t id = e.ids[begin];
  if ((begin > 0 && e.ids[begin - 1] == id) || id < 0 || id >= e.vocabulary) return;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWide;
  if (column >= e.width) return;
  const T* grad = static_cast<const T*>(e.grad) + table * e.count * e.width + column;
  Real sum[kWide] = {};
  for (int64_t p = begin; p < e.count && e.ids[p] == id; p += kAtOnce) {
    Pack<T, kWide> row[kAtOnce];
    bool same[kAtOnce];
    Real factor[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      same[i] = p + i < e.count && e.ids[p + i] == id;
      if (!same[i]) continue;
      const int64_t position = e.positions[p + i];
      factor[i] = e.coefficients ? static_cast<Real>(e.coefficients[position / e.tokens]) : Real(1);
      same[i] = factor[i] != 0;
      if (same[i]) row[i] = load_pack<kWide>(grad + position * e.width);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (same[i]) {
#pragma unroll
        for (int k = 0; k < kWide; ++k) sum[k] += factor[i] * row[i].at(k);
      }
    }
  }
  // out's packs hold fewer elements if it is wider
  constexpr int kStore = kWide > 1 ? kWideOf<Out> : 1;
  Out* out = static_cast<Out*>(e.out) + table * e.out_stride + id * e.width + column;
#pragma unroll
  for (int from = 0; from < kWide; from += kStore) {
    Real part[kStore];
#pragma unroll
    for (int k = 0; k < kStore; ++k) part[k] = sum[from + k];
    if (e.accumulate) {
      const auto before = load_pack<kStore>(out + from);
#pragma unroll
      for (int k = 0; k < kStore; ++k) part[k] += before.at(k);
    }
    store_pack<kStore>(out + from, Pack<Out, kStore>::of(part));
  }
}

template <typename T, typename Out>
void run_into(const EmbeddingGrad& e) {
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(e.stream);
  if (!e.accumulate) {
    const size_t bytes = static_cast<size_t>(e.vocabulary * e.width) * sizeof(Out);
    for (int64_t table = 0; table < e.tables; ++table) {
      const cudaError_t error =
          cudaMemsetAsync(static_cast<Out*>(e.out) + table * e.out_stride, 0, bytes, stream);
      if (error != cudaSuccess)
        throw std::runtime_error(std::string("[embedding_grad] ") + cudaGetErrorString(error));
    }
  }
  if (e.count == 0) return;
  const bool packs = aligned(e.grad) && aligned(e.out) && e.width % kWide == 0 &&
                     (e.tables == 1 || e.out_stride % kWide == 0);
  const int64_t columns = kThreads * (packs ? kWide : 1);
  const dim3 grid(static_cast<unsigned>(e.tables * e.count),
                  static_cast<unsigned>((e.width + columns - 1) / columns));
  if (packs) {
    embedding_grad_kernel<T, Out, kWide><<<grid, kThreads, 0, stream>>>(e);
  } else {
    embedding_grad_kernel<T, Out, 1><<<grid, kThreads, 0, stream>>>(e);
  }
  check_launch("embedding_grad");
}

template <typename T>
struct Run {
  static void run(const EmbeddingGrad& e) {
    if (e.out_element == e.element) return run_into<T, T>(e);
    if constexpr (sizeof(T) == 2) return run_into<T, float>(e);
  }
};

}  // namespace

void embedding_grad(const EmbeddingGrad& embedding) {
  for_element<Run>(embedding.element, embedding);
}

}  // namespace veil::launch
