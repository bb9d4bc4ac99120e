#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/launch.h"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;

// A thread a column, a block of rows: neighbours read neighbours, and every chunk's sum has its own
// place.
template <typename X, typename Real>
__global__ void partial_kernel(const X* x, Real* partial, int64_t rows, int64_t columns,
                               int64_t rows_a_chunk) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  const int64_t begin = blockIdx.y * rows_a_chunk;
  const int64_t end = begin + rows_a_chunk < rows ? begin + rows_a_chunk : rows;
  Real sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += static_cast<Real>(x[i * columns + column]);
  partial[blockIdx.y * columns + column] = sum;
}

template <typename Out, typename Real>
__global__ void finish_kernel(const Real* partial, Out* out, int64_t chunks, int64_t columns,
                              bool accumulate) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  Real sum = accumulate ? static_cast<Real>(out[column]) : Real(0);
  for (int64_t c = 0; c < chunks; ++c) sum += partial[c * columns + column];
  out[column] = static_cast<Out>(sum);
}

template <typename X, typename Out>
void run(const ColumnSum& s) {
  using Real =
      std::conditional_t<std::is_same_v<X, double> || std::is_same_v<Out, double>, double, float>;
  const int64_t chunks = column_sum_chunks(s.rows), rows_a_chunk = (s.rows + chunks - 1) / chunks;
  const auto blocks = static_cast<unsigned>((s.columns + kThreads - 1) / kThreads);
  const auto stream = static_cast<cudaStream_t>(s.stream);
  auto* partial = static_cast<Real*>(s.partial);
  partial_kernel<X, Real><<<dim3(blocks, static_cast<unsigned>(chunks)), kThreads, 0, stream>>>(
      static_cast<const X*>(s.x), partial, s.rows, s.columns, rows_a_chunk);
  check_launch("column_sum");
  finish_kernel<Out, Real><<<blocks, kThreads, 0, stream>>>(partial, static_cast<Out*>(s.out),
                                                            chunks, s.columns, s.accumulate);
  check_launch("column_sum");
}

template <typename X>
void run_for_x(const ColumnSum& s) {
  switch (s.out_element) {
    case Element::fp32:
      return run<X, float>(s);
    case Element::fp64:
      return run<X, double>(s);
    case Element::bf16:
      return run<X, __nv_bfloat16>(s);
    case Element::fp16:
      return run<X, __half>(s);
  }
}

}  // namespace

void column_sum(const ColumnSum& s) {
  if (s.columns == 0) return;
  switch (s.x_element) {
    case Element::fp32:
      return run_for_x<float>(s);
    case Element::fp64:
      return run_for_x<double>(s);
    case Element::bf16:
      return run_for_x<__nv_bfloat16>(s);
    case Element::fp16:
      return run_for_x<__half>(s);
  }
}

}  // namespace veil::launch
