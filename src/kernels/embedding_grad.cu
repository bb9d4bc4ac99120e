#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;
constexpr int kAtOnce = 8;  // rows read before the first is added

// What a table's norm rests on: differences, one for each block of embedding_grad_kernel, the mark of
// a table that is read again, and the sums of its parts.
struct TableNorm {
  double *differences, *again, *parts;
  __device__ __forceinline__ TableNorm(const EmbeddingGrad& e, int64_t table, int64_t strips)
      : differences(e.partial + table * (e.count * strips + 1 + kTableParts)),
        again(differences + e.count * strips),
        parts(again + 1) {}
};

// Of the columns from `column` on of one id, whose rows stand from `begin` on. With kNormed, what the
// sum of their squares grows by.
template <typename T, typename Out, int kWide, bool kNormed>
__device__ __forceinline__ double add_rows(const EmbeddingGrad& e, int64_t table, int64_t begin,
                                           int64_t id, int64_t column) {
  using Real = RealOf<T>;
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
  double difference = 0;
#pragma unroll
  for (int from = 0; from < kWide; from += kStore) {
    Real part[kStore];
#pragma unroll
    for (int k = 0; k < kStore; ++k) part[k] = sum[from + k];
    Pack<Out, kStore> before = {};
    if (e.accumulate) {
      before = load_pack<kStore>(out + from);
#pragma unroll
      for (int k = 0; k < kStore; ++k) part[k] += before.at(k);
    }
    const auto after = Pack<Out, kStore>::of(part);
    store_pack<kStore>(out + from, after);
    if constexpr (kNormed) {
#pragma unroll
      for (int k = 0; k < kStore; ++k) {
        const auto was = static_cast<double>(before.at(k)), is = static_cast<double>(after.at(k));
        difference += is * is - was * was;
      }
    }
  }
  return difference;
}

// A block for each place in a table's sorted order and each strip of columns; only the first place
// of an id works, and adds all rows of it in order.
template <typename T, typename Out, int kWide, bool kNormed>
__global__ void embedding_grad_kernel(EmbeddingGrad e) {
  const int64_t table = blockIdx.x / e.count, begin = blockIdx.x % e.count;
  e.ids += table * e.count;
  e.positions += table * e.count;
  const int64_t id = e.ids[begin];
  const bool works = (begin == 0 || e.ids[begin - 1] != id) && id >= 0 && id < e.vocabulary;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWide;
  double difference = 0;
  if (works && column < e.width)
    difference = add_rows<T, Out, kWide, kNormed>(e, table, begin, id, column);
  if constexpr (kNormed) {
    if (works) difference = whole_block_sum(difference);
    const int64_t strips = gridDim.y;
    if (threadIdx.x == 0)
      TableNorm(e, table, strips).differences[begin * strips + blockIdx.y] = difference;
  }
}

// A block for each table adds its differences in order. A norm that is not a number is not kept.
__global__ void __launch_bounds__(kThreads) norm_kernel(EmbeddingGrad e, int64_t strips) {
  const TableNorm norm(e, blockIdx.x, strips);
  double sum = 0;
  for (int64_t k = threadIdx.x; k < e.count * strips; k += kThreads) sum += norm.differences[k];
  sum = whole_block_sum(sum);
  if (threadIdx.x > 0) return;
  double& squared = e.squared[blockIdx.x];
  const bool kept = squared + sum >= squared / 2;
  if (kept) squared += sum;
  *norm.again = kept ? 0 : 1;
}

// Tables that are marked, part by part, and then the parts in order.
template <typename Out>
__global__ void __launch_bounds__(kThreads) part_kernel(EmbeddingGrad e, int64_t strips) {
  const TableNorm norm(e, blockIdx.y, strips);
  if (*norm.again == 0) return;
  const int64_t numel = e.vocabulary * e.width, a_part = (numel + kTableParts - 1) / kTableParts,
                begin = blockIdx.x * a_part, end = begin + a_part < numel ? begin + a_part : numel;
  const Out* out = static_cast<const Out*>(e.out) + blockIdx.y * e.out_stride;
  double sum = 0;
  for (int64_t j = begin + threadIdx.x; j < end; j += kThreads) {
    const auto value = static_cast<double>(real(out[j]));
    sum += value * value;
  }
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) norm.parts[blockIdx.x] = sum;
}
__global__ void __launch_bounds__(kThreads) again_kernel(EmbeddingGrad e, int64_t strips) {
  static_assert(kThreads == kTableParts);
  const TableNorm norm(e, blockIdx.x, strips);
  if (*norm.again == 0) return;
  const double sum = whole_block_sum(norm.parts[threadIdx.x]);
  if (threadIdx.x == 0) e.squared[blockIdx.x] = sum;
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
  const auto add = [&](auto normed) {
    if (packs) {
      embedding_grad_kernel<T, Out, kWide, normed.value><<<grid, kThreads, 0, stream>>>(e);
    } else {
      embedding_grad_kernel<T, Out, 1, normed.value><<<grid, kThreads, 0, stream>>>(e);
    }
    check_launch("embedding_grad");
  };
  if (!e.squared) return add(std::false_type());
  add(std::true_type());
  const auto tables = static_cast<unsigned>(e.tables);
  norm_kernel<<<tables, kThreads, 0, stream>>>(e, grid.y);
  check_launch("embedding_grad");
  part_kernel<Out><<<dim3(kTableParts, tables), kThreads, 0, stream>>>(e, grid.y);
  check_launch("embedding_grad");
  again_kernel<<<tables, kThreads, 0, stream>>>(e, grid.y);
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
