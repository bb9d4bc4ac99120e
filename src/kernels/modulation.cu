#include "kernels/norm.cuh"

namespace veil::launch {
namespace {

template <typename T>
struct Forward {
  static void run(const Norm& norm) { run_norm<T, /*kCentred=*/true, /*kModulated=*/true>(norm); }
};
template <typename T>
struct Backward {
  static void run(const NormBackward& norm) {
    run_norm_backward<T, /*kCentred=*/true, /*kModulated=*/true>(norm);
  }
};

constexpr int kThreads = 128;

// One thread per pack of columns of one row.
template <typename T, int kWide>
__global__ void gated_add_kernel(GatedAdd g, int64_t packs) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t a_row = g.width / kWide, row = pack / a_row, column = pack % a_row * kWide,
                at = row * g.width + column;
  const auto x = load_pack<kWide>(static_cast<const T*>(g.x) + at);
  const auto add = load_pack<kWide>(static_cast<const T*>(g.add) + at);
  const auto gate =
      load_pack<kWide>(static_cast<const T*>(g.gate) + row / g.rows * g.gate_stride + column);
  RealOf<T> out[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) out[k] = x.at(k) + gate.at(k) * add.at(k);
  store_pack<kWide>(static_cast<T*>(g.out) + at, Pack<T, kWide>::of(out));
}

template <typename T>
struct Add {
  static void run(const GatedAdd& g) {
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(g.stream);
    const bool wide = aligned(g.x) && aligned(g.add) && aligned(g.gate) && aligned(g.out) &&
                      g.width % kWide == 0 && g.gate_stride % kWide == 0;
    const int64_t packs = g.batch * g.rows * g.width / (wide ? kWide : 1);
    const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
    if (wide) {
      gated_add_kernel<T, kWide><<<blocks, kThreads, 0, stream>>>(g, packs);
    } else {
      gated_add_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(g, packs);
    }
    check_launch("gated_add");
  }
};

// One thread per pack of columns, one block per strip of a sample's rows.
template <typename T, int kWide>
__global__ void gated_add_backward_kernel(GatedAddBackward g, int64_t strips, int64_t rows_a_strip,
                                          RealOf<T>* gate_sums, RealOf<T>* add_sums,
                                          int64_t gate_stride) {
  using Real = RealOf<T>;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kWide;
  if (column >= g.width) return;
  const int64_t sample = blockIdx.x / strips, begin = blockIdx.x % strips * rows_a_strip;
  const int64_t end = begin + rows_a_strip < g.rows ? begin + rows_a_strip : g.rows;
  const int64_t first = sample * g.rows * g.width + column;
  const T *dy = static_cast<const T*>(g.dy) + first, *add = static_cast<const T*>(g.add) + first;
  T* d_add = static_cast<T*>(g.d_add) + first;
  const auto gate =
      load_pack<kWide>(static_cast<const T*>(g.gate) + sample * g.gate_stride + column);
  Real gate_sum[kWide] = {}, add_sum[kWide] = {};
  constexpr int kAtOnce = 4;  // rows that are read before the first is stored
  for (int64_t from = begin; from < end; from += kAtOnce) {
    Pack<T, kWide> d[kAtOnce], a[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (from + i < end) {
        d[i] = load_pack<kWide>(dy + (from + i) * g.width);
        a[i] = load_pack<kWide>(add + (from + i) * g.width);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (from + i < end) {
        Real out[kWide];
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          out[k] = d[i].at(k) * gate.at(k);
          gate_sum[k] += d[i].at(k) * a[i].at(k);
          add_sum[k] += out[k];
        }
        store_pack<kWide>(d_add + (from + i) * g.width, Pack<T, kWide>::of(out));
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    gate_sums[static_cast<int64_t>(blockIdx.x) * gate_stride + column + k] = gate_sum[k];
    add_sums[static_cast<int64_t>(blockIdx.x) * g.width + column + k] = add_sum[k];
  }
}

template <typename T>
struct AddBackward {
  static void run(const GatedAddBackward& g) {
    using Real = RealOf<T>;
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(g.stream);
    const int64_t strips = sample_strips(g.batch, g.rows);
    const int64_t rows = strips == 1 ? g.rows : strip_rows(g.batch, g.rows);
    Real *gate_grad = static_cast<Real*>(g.gate_grad), *add_sum = static_cast<Real*>(g.add_sum);
    Real* gate_sums = strips == 1 ? gate_grad : static_cast<Real*>(g.partial);
    Real* add_sums = strips == 1 ? add_sum : gate_sums + g.batch * strips * g.width;
    const int64_t stride = strips == 1 ? g.grad_stride : g.width;
    const bool wide = aligned(g.dy) && aligned(g.add) && aligned(g.gate) && aligned(g.d_add) &&
                      g.width % kWide == 0 && g.gate_stride % kWide == 0;
    const int64_t columns = kThreads * (wide ? kWide : 1);
    const dim3 grid(static_cast<unsigned>(g.batch * strips),
                    static_cast<unsigned>((g.width + columns - 1) / columns));
    if (wide) {
      gated_add_backward_kernel<T, kWide>
          <<<grid, kThreads, 0, stream>>>(g, strips, rows, gate_sums, add_sums, stride);
    } else {
      gated_add_backward_kernel<T, 1>
          <<<grid, kThreads, 0, stream>>>(g, strips, rows, gate_sums, add_sums, stride);
    }
    check_launch("gated_add_backward");
    if (strips > 1)
      add_strips(gate_sums, gate_grad, add_sum, g.batch, strips, g.width, stream, g.grad_stride);
  }
};

}  // namespace

void modulated_norm(const Norm& norm) {
  for_element<Forward>(norm.element, norm);
}
void modulated_norm_backward(const NormBackward& norm) {
  for_element<Backward>(norm.element, norm);
}
void gated_add(const GatedAdd& gated) {
  for_element<Add>(gated.element, gated);
}
void gated_add_backward(const GatedAddBackward& gated) {
  for_element<AddBackward>(gated.element, gated);
}

}  // namespace veil::launch
