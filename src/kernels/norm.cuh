// rms_norm, layer_norm (kCentred) and modulated_norm (kModulated) as CUDA kernels: a row is read
// once and stays in registers. For .cu files.
#pragma once

#include "kernels/launch.h"
#include "kernels/strip_sums.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {

// How a row lies on a block: `threads` with `slots` packs each; 0 slots if packs do not fit and
// elements are taken one by one.
struct RowShape {
  int threads, slots;
};
template <typename T>
RowShape row_shape(int64_t width, bool packs) {
  const int64_t vectors = width / kWideOf<T>;
  if (!packs || width % kWideOf<T> != 0 || vectors > 4 * 512) {
    const int64_t wanted = (width + 31) / 32 * 32;
    return {static_cast<int>(wanted < 512 ? wanted : 512), 0};
  }
  const int slots = vectors <= 256 ? 1 : vectors <= 1024 ? 2 : 4;
  return {static_cast<int>(((vectors + slots - 1) / slots + 31) / 32 * 32), slots};
}

// A row to a block's x dimension; several rows a block only if that is one warp.
template <typename T, bool kCentred, bool kModulated, int kSlots>
__global__ void __launch_bounds__(512) norm_kernel(Norm n) {
  using Real = RealOf<T>;
  constexpr int kWide = kWideOf<T>;
  __shared__ Real lanes[2][32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= n.rows) return;
  const int vectors = static_cast<int>(n.width / kWide);
  const Real offset = kModulated ? Real(1) : static_cast<Real>(n.offset);  // of the weight
  const T* x = static_cast<const T*>(n.x) + row * n.width;
  // where this sample's weights begin
  const int64_t own = kModulated ? row / n.sample_rows * n.stride : 0;
  Pack<T, kWide> value[kSlots] = {}, add[kSlots] = {}, weight[kSlots] = {},
                 bias[kCentred ? kSlots : 1] = {}, gate[kModulated ? kSlots : 1] = {};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    if (v < vectors) {
      value[s] = load_pack<kWide>(x + v * kWide);
      if (n.add)
        add[s] = load_pack<kWide>(static_cast<const T*>(n.add) + row * n.width + v * kWide);
      weight[s] = load_pack<kWide>(static_cast<const T*>(n.weight) + own + v * kWide);
      if constexpr (kCentred)
        bias[s] = load_pack<kWide>(static_cast<const T*>(n.bias) + own + v * kWide);
      if constexpr (kModulated) {
        if (n.add) gate[s] = load_pack<kWide>(static_cast<const T*>(n.gate) + own + v * kWide);
      }
    }
  }
  if (n.add) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      Real sums[kWide];
#pragma unroll
      for (int k = 0; k < kWide; ++k)
        sums[k] = value[s].at(k) +
                  (kModulated ? gate[kModulated ? s : 0].at(k) * add[s].at(k) : add[s].at(k));
      value[s] = Pack<T, kWide>::of(sums);
      if (v < vectors)
        store_pack<kWide>(static_cast<T*>(n.sum) + row * n.width + v * kWide, value[s]);
    }
  }
  const Real width = static_cast<Real>(n.width);
  Real mean = 0;
  if constexpr (kCentred) {
    Real sum[1] = {0};
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#pragma unroll
      for (int k = 0; k < kWide; ++k) sum[0] += value[s].at(k);
    }
    block_sum(sum, lanes[0]);
    mean = sum[0] / width;
  }
  Real squares[1] = {0};
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const bool inside = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x) < vectors;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const Real centred = inside ? value[s].at(k) - mean : Real(0);
      squares[0] += centred * centred;
    }
  }
  block_sum(squares, lanes[1]);
  const Real r =
      Real(1) / static_cast<Real>(sqrt(squares[0] / width + static_cast<Real>(n.epsilon)));
  if (threadIdx.x == 0) {
    if constexpr (kCentred) static_cast<Real*>(n.mean)[row] = mean;
    static_cast<Real*>(n.rstd)[row] = r;
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    Real out[kWide];
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      out[k] = (value[s].at(k) - mean) * r * (weight[s].at(k) + offset);
      if constexpr (kCentred) out[k] += bias[s].at(k);
    }
    if (v < vectors)
      store_pack<kWide>(static_cast<T*>(n.out) + row * n.width + v * kWide,
                        Pack<T, kWide>::of(out));
  }
}

// Any width and address, an element at a time.
template <typename T, bool kCentred, bool kModulated>
__global__ void norm_plain_kernel(Norm n) {
  using Real = RealOf<T>;
  __shared__ Real lanes[2][32];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * n.width;
  const Real offset = kModulated ? Real(1) : static_cast<Real>(n.offset);  // of the weight
  const int64_t own = kModulated ? blockIdx.x / n.sample_rows * n.stride : 0;
  const T *x = static_cast<const T*>(n.x) + at, *weight = static_cast<const T*>(n.weight) + own;
  if (n.add) {
    const T *add = static_cast<const T*>(n.add) + at, *gate = static_cast<const T*>(n.gate) + own;
    T* sum = static_cast<T*>(n.sum) + at;
    for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x)
      sum[j] = rounded<T>(real(x[j]) + (kModulated ? real(gate[j]) * real(add[j]) : real(add[j])));
    x = sum;  // each thread reads again only what it wrote
  }
  const Real width = static_cast<Real>(n.width);
  Real mean = 0;
  if constexpr (kCentred) {
    Real sum[1] = {0};
    for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x) sum[0] += real(x[j]);
    block_sum(sum, lanes[0]);
    mean = sum[0] / width;
  }
  Real squares[1] = {0};
  for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x)
    squares[0] += (real(x[j]) - mean) * (real(x[j]) - mean);
  block_sum(squares, lanes[1]);
  const Real r =
      Real(1) / static_cast<Real>(sqrt(squares[0] / width + static_cast<Real>(n.epsilon)));
  if (threadIdx.x == 0) {
    if constexpr (kCentred) static_cast<Real*>(n.mean)[blockIdx.x] = mean;
    static_cast<Real*>(n.rstd)[blockIdx.x] = r;
  }
  T* out = static_cast<T*>(n.out) + at;
  for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x) {
    Real y = (real(x[j]) - mean) * r * (real(weight[j]) + offset);
    if constexpr (kCentred) y += real(static_cast<const T*>(n.bias)[own + j]);
    out[j] = rounded<T>(y);
  }
}

template <typename T, bool kCentred, bool kModulated = false>
void run_norm(const Norm& n) {
  const auto stream = static_cast<cudaStream_t>(n.stream);
  const bool packs = aligned(n.x) && aligned(n.add) && aligned(n.weight) && aligned(n.bias) &&
                     aligned(n.sum) && aligned(n.out) && aligned(n.gate) &&
                     n.stride % kWideOf<T> == 0;
  const RowShape shape = row_shape<T>(n.width, packs);
  const int rows_a_block = shape.threads == 32 ? 4 : 1;
  const dim3 block(static_cast<unsigned>(shape.threads), static_cast<unsigned>(rows_a_block));
  const auto blocks = static_cast<unsigned>((n.rows + rows_a_block - 1) / rows_a_block);
  switch (shape.slots) {
    case 0:
      norm_plain_kernel<T, kCentred, kModulated>
          <<<static_cast<unsigned>(n.rows), shape.threads, 0, stream>>>(n);
      break;
    case 1:
      norm_kernel<T, kCentred, kModulated, 1><<<blocks, block, 0, stream>>>(n);
      break;
    case 2:
      norm_kernel<T, kCentred, kModulated, 2><<<blocks, block, 0, stream>>>(n);
      break;
    default:
      norm_kernel<T, kCentred, kModulated, 4><<<blocks, block, 0, stream>>>(n);
  }
  check_launch(kModulated ? "modulated_norm" : kCentred ? "layer_norm" : "rms_norm");
}

// A row of backward as a thread holds it.
template <typename T, int kSlots>
struct NormRow {
  Pack<T, kWideOf<T>> x[kSlots] = {}, dy[kSlots] = {}, residual[kSlots] = {};
  RealOf<T> rstd = 0, mean = 0;
};

// A block walks a strip of one sample's rows, kRows at a time: dx row by row, the columns' sums of
// dy y (and of dy) in registers. The next rows are on their way while the block adds up.
template <typename T, bool kCentred, bool kModulated, int kSlots, int kRows>
__global__ void __launch_bounds__(512)
    norm_backward_kernel(NormBackward n, int64_t strips, int64_t rows_a_strip,
                         RealOf<T>* weight_sums, RealOf<T>* bias_sums, int64_t sums_stride) {
  using Real = RealOf<T>;
  using Packs = Pack<T, kWideOf<T>>;
  constexpr int kWide = kWideOf<T>, kSums = kCentred ? 2 : 1;
  __shared__ Real lanes[2][kRows * kSums * 32];
  const int64_t sample = blockIdx.x / strips, strip = blockIdx.x % strips;
  const int64_t begin = sample * n.rows + strip * rows_a_strip, last = (sample + 1) * n.rows;
  const int64_t end = begin + rows_a_strip < last ? begin + rows_a_strip : last;
  const int vectors = static_cast<int>(n.width / kWide);
  const Real offset = kModulated ? Real(1) : static_cast<Real>(n.offset);  // of the weight
  const T *x_at = static_cast<const T*>(n.x), *dy_at = static_cast<const T*>(n.dy),
          *residual_at = static_cast<const T*>(n.residual);
  const Real *rstd = static_cast<const Real*>(n.rstd), *means = static_cast<const Real*>(n.mean);
  const Real width = static_cast<Real>(n.width);

  Packs weight[kSlots] = {};
  Real weight_sum[kSlots][kWide] = {}, bias_sum[kCentred ? kSlots : 1][kWide] = {};
  NormRow<T, kSlots> rows[kRows];
  // Of several rows, one behind the strip's end is 0 and adds nothing.
  auto fetch = [&](int64_t row, NormRow<T, kSlots>& to) {
    if (row >= end) {
      if constexpr (kRows > 1) to = {};
      return;
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      if (v < vectors) {
        const int64_t at = row * n.width + v * kWide;
        to.x[s] = load_pack<kWide>(x_at + at);
        to.dy[s] = load_pack<kWide>(dy_at + at);
        if (residual_at) to.residual[s] = load_pack<kWide>(residual_at + at);
      }
    }
    to.rstd = rstd[row];
    if constexpr (kCentred) to.mean = means[row];
  };
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    if (v < vectors)
      weight[s] = load_pack<kWide>(static_cast<const T*>(n.weight) +
                                   (kModulated ? sample * n.stride : 0) + v * kWide);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) fetch(begin + i, rows[i]);
  int turn = 0;
  for (int64_t row = begin; row < end; row += kRows, turn ^= 1) {
    Real sums[kRows * kSums] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const NormRow<T, kSlots>& of = rows[i];
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
#pragma unroll
        for (int k = 0; k < kWide; ++k) {  // packs behind the row's end are 0 and add nothing
          const Real d = of.dy[s].at(k), y = (of.x[s].at(k) - of.mean) * of.rstd,
                     g = d * (weight[s].at(k) + offset);
          sums[i * kSums] += g * y;
          weight_sum[s][k] += d * y;
          if constexpr (kCentred) {
            sums[i * kSums + 1] += g;
            bias_sum[s][k] += d;
          }
        }
      }
    }
    constexpr bool kAhead = kSlots <= 2;  // registers for twice the rows
    NormRow<T, kSlots> next[kRows];
#pragma unroll
    for (int i = 0; kAhead && i < kRows; ++i) fetch(row + kRows + i, next[i]);
    block_sum(sums, lanes[turn]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const NormRow<T, kSlots>& of = rows[i];
      const Real mean_gy = sums[i * kSums] / width,
                 mean_g = kCentred ? sums[i * kSums + kSums - 1] / width : Real(0);
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
        Real dx[kWide];
#pragma unroll
        for (int k = 0; k < kWide; ++k) {
          const Real g = of.dy[s].at(k) * (weight[s].at(k) + offset),
                     y = (of.x[s].at(k) - of.mean) * of.rstd;
          dx[k] = of.rstd * (kCentred ? g - mean_g - y * mean_gy : g - y * mean_gy);
          if (residual_at) dx[k] += of.residual[s].at(k);
        }
        if (v < vectors && row + i < end)
          store_pack<kWide>(static_cast<T*>(n.dx) + (row + i) * n.width + v * kWide, Packs::of(dx));
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if constexpr (kAhead) {
        rows[i] = next[i];
      } else {
        fetch(row + kRows + i, rows[i]);
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kSlots; ++s) {
    const int v = s * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    if (v >= vectors) break;
    const int64_t at = static_cast<int64_t>(blockIdx.x) * sums_stride + v * kWide;
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      weight_sums[at + k] = weight_sum[s][k];
      if constexpr (kCentred) bias_sums[at + k] = bias_sum[s][k];
    }
  }
}

// Any width and address; the columns' sums are in memory, each with the thread that owns the
// column.
template <typename T, bool kCentred, bool kModulated>
__global__ void norm_backward_plain_kernel(NormBackward n, int64_t strips, int64_t rows_a_strip,
                                           RealOf<T>* weight_sums, RealOf<T>* bias_sums,
                                           int64_t sums_stride) {
  using Real = RealOf<T>;
  __shared__ Real lanes[2][2 * 32];
  const int64_t sample = blockIdx.x / strips, strip = blockIdx.x % strips;
  const int64_t begin = sample * n.rows + strip * rows_a_strip, last = (sample + 1) * n.rows;
  const int64_t end = begin + rows_a_strip < last ? begin + rows_a_strip : last;
  const T* weight = static_cast<const T*>(n.weight) + (kModulated ? sample * n.stride : 0);
  const Real width = static_cast<Real>(n.width),
             offset = kModulated ? Real(1) : static_cast<Real>(n.offset);  // of the weight
  weight_sums += static_cast<int64_t>(blockIdx.x) * sums_stride;
  if constexpr (kCentred) bias_sums += static_cast<int64_t>(blockIdx.x) * sums_stride;
  for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x) {
    weight_sums[j] = 0;
    if constexpr (kCentred) bias_sums[j] = 0;
  }
  for (int64_t row = begin; row < end; ++row) {
    const T *x = static_cast<const T*>(n.x) + row * n.width,
            *dy = static_cast<const T*>(n.dy) + row * n.width;
    const T* before = n.residual ? static_cast<const T*>(n.residual) + row * n.width : nullptr;
    T* dx = static_cast<T*>(n.dx) + row * n.width;
    const Real r = static_cast<const Real*>(n.rstd)[row];
    Real mean = 0;
    if constexpr (kCentred) mean = static_cast<const Real*>(n.mean)[row];
    Real sums[kCentred ? 2 : 1] = {};
    for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x) {
      const Real g = real(dy[j]) * (real(weight[j]) + offset);
      sums[0] += g * ((real(x[j]) - mean) * r);
      if constexpr (kCentred) sums[1] += g;
    }
    block_sum(sums, lanes[(row - begin) % 2]);
    const Real mean_gy = sums[0] / width,
               mean_g = kCentred ? sums[kCentred ? 1 : 0] / width : Real(0);
    for (int64_t j = threadIdx.x; j < n.width; j += blockDim.x) {
      const Real d = real(dy[j]), g = d * (real(weight[j]) + offset), y = (real(x[j]) - mean) * r;
      weight_sums[j] += d * y;
      if constexpr (kCentred) bias_sums[j] += d;
      Real value = r * (kCentred ? g - mean_g - y * mean_gy : g - y * mean_gy);
      if (before) value += real(before[j]);
      dx[j] = rounded<T>(value);
    }
  }
}

template <typename T, bool kCentred, bool kModulated = false>
void run_norm_backward(const NormBackward& n) {
  using Real = RealOf<T>;
  const auto stream = static_cast<cudaStream_t>(n.stream);
  const int64_t strips = sample_strips(n.batch, n.rows), rows_a_strip = strip_rows(n.batch, n.rows);
  const int64_t rows = strips == 1 ? n.rows : rows_a_strip;
  Real *weight_grad = static_cast<Real*>(n.weight_grad),
       *bias_grad = static_cast<Real*>(n.bias_grad);
  Real* weight_sums = strips == 1 ? weight_grad : static_cast<Real*>(n.partial);
  Real* bias_sums = strips == 1 ? bias_grad : weight_sums + n.batch * strips * n.width;
  const int64_t grad_stride = kModulated ? n.grad_stride : n.width,
                sums_stride = strips == 1 ? grad_stride : n.width;
  const bool packs = aligned(n.x) && aligned(n.dy) && aligned(n.weight) && aligned(n.residual) &&
                     aligned(n.dx) && n.stride % kWideOf<T> == 0;
  const RowShape shape = row_shape<T>(n.width, packs);
  const auto blocks = static_cast<unsigned>(n.batch * strips);
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, shape.threads, 0, stream>>>(n, strips, rows, weight_sums, bias_sums,
                                                 sums_stride);
  };
  // With one row each, the few blocks of so few threads have too little on its way.
  const bool narrow = shape.threads <= 128;
  switch (shape.slots) {
    case 0:
      launch(norm_backward_plain_kernel<T, kCentred, kModulated>);
      break;
    case 1:
      launch(narrow ? norm_backward_kernel<T, kCentred, kModulated, 1, 2>
                    : norm_backward_kernel<T, kCentred, kModulated, 1, 1>);
      break;
    case 2:
      launch(norm_backward_kernel<T, kCentred, kModulated, 2, 1>);
      break;
    default:
      launch(norm_backward_kernel<T, kCentred, kModulated, 4, 1>);
  }
  check_launch(kModulated ? "modulated_norm_backward"
               : kCentred ? "layer_norm_backward"
                          : "rms_norm_backward");
  if (strips > 1) {
    add_strips(weight_sums, weight_grad, kCentred ? bias_grad : nullptr, n.batch, strips, n.width,
               stream, grad_stride, grad_stride);
  }
}

}  // namespace veil::launch
