#include "kernels/launch.h"
#include "kernels/launch_check.h"
#include "kernels/pack.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;

// 1 / (1 + e^-x). What is rounded to two bytes takes the fast instructions, whose error is far below that rounding.
template <typename T>
__device__ __forceinline__ RealOf<T> sigmoid(RealOf<T> x) {
  if constexpr (sizeof(T) == 2) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
  } else {
    return RealOf<T>(1) / (RealOf<T>(1) + exp(-x));
  }
}

template <typename T>
__device__ __forceinline__ RealOf<T> gelu_gate(RealOf<T> x) {
  using Real = RealOf<T>;
  return sigmoid<T>(Real(1.5957691216057308) * (x + Real(0.044715) * x * x * x));  // 2 sqrt(2 / pi)
}

// Where pack `index` of a [rows, width] matrix stands; 32-bit division where it will do.
struct PackPlace {
  int64_t row, column;
};
__device__ __forceinline__ PackPlace pack_place(int64_t index, int64_t packs_a_row) {
  int64_t row;
  if (index <= 0xFFFFFFFFll && packs_a_row <= 0xFFFFFFFFll) {
    row = static_cast<uint32_t>(index) / static_cast<uint32_t>(packs_a_row);
  } else {
    row = index / packs_a_row;
  }
  return {row, index - row * packs_a_row};
}

template <typename T, int kWide>
__global__ void swiglu_kernel(Swiglu s) {
  using Real = RealOf<T>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, packs = s.width / kWide;
  if (index >= s.rows * packs) return;
  const PackPlace place = pack_place(index, packs);
  const T* gate_at = static_cast<const T*>(s.gate_up) + place.row * 2 * s.width + place.column * kWide;
  const auto gate = load_pack<kWide>(gate_at), up = load_pack<kWide>(gate_at + s.width);
  Pack<T, kWide> out;
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real g = real(gate.value[k]);
    out.value[k] = rounded<T>(g * sigmoid<T>(g) * real(up.value[k]));
  }
  store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, out);
}

// All of a thread's elements are read before the first is written: results may lie on what they are made from.
template <typename T, int kWide>
__global__ void swiglu_backward_kernel(Swiglu s) {
  using Real = RealOf<T>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, packs = s.width / kWide;
  if (index >= s.rows * packs) return;
  const PackPlace place = pack_place(index, packs);
  const int64_t at = place.row * 2 * s.width + place.column * kWide;
  const T* gate_at = static_cast<const T*>(s.gate_up) + at;
  const auto gate = load_pack<kWide>(gate_at), up = load_pack<kWide>(gate_at + s.width);
  const auto grad = load_pack<kWide>(static_cast<const T*>(s.grad) + index * kWide);
  Pack<T, kWide> d_gate, d_up, out;
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real g = real(gate.value[k]), u = real(up.value[k]), d = real(grad.value[k]);
    const Real gated = sigmoid<T>(g), silu = g * gated;
    d_gate.value[k] = rounded<T>(d * u * (gated + silu * (Real(1) - gated)));
    d_up.value[k] = rounded<T>(d * silu);
    out.value[k] = rounded<T>(silu * u);
  }
  T* d_gate_at = static_cast<T*>(s.d_gate_up) + at;
  store_pack<kWide>(d_gate_at, d_gate);
  store_pack<kWide>(d_gate_at + s.width, d_up);
  if (s.out) store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, out);
}

// One body for whole packs and for what is left of the last.
template <typename T, int kWide, bool kBackward>
__device__ __forceinline__ void gelu_pack(Pack<T, kWide> x, Pack<T, kWide> grad, Pack<T, kWide>& dx,
                                          Pack<T, kWide>& out) {
  using Real = RealOf<T>;
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real value = real(x.value[k]), gate = gelu_gate<T>(value);
    out.value[k] = rounded<T>(value * gate);
    if constexpr (kBackward) {
      const Real inner = Real(1.5957691216057308) * (Real(1) + Real(3 * 0.044715) * value * value);
      dx.value[k] = rounded<T>(real(grad.value[k]) * (gate + value * gate * (Real(1) - gate) * inner));
    }
  }
}

template <typename T, int kWide, bool kBackward>
__global__ void gelu_kernel(Gelu e) {
  const int64_t from = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (from >= e.numel) return;
  const T *x_at = static_cast<const T*>(e.x) + from, *grad_at = static_cast<const T*>(e.grad) + (kBackward ? from : 0);
  T *out_at = static_cast<T*>(e.out) + (e.out ? from : 0), *dx_at = static_cast<T*>(e.dx) + (kBackward ? from : 0);
  Pack<T, kWide> x = {}, grad = {}, dx, out;
  const bool whole = from + kWide <= e.numel;
  const int count = whole ? kWide : static_cast<int>(e.numel - from);
  if (whole) {
    x = load_pack<kWide>(x_at);
    if constexpr (kBackward) grad = load_pack<kWide>(grad_at);
  } else {
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      if (k < count) {
        x.value[k] = x_at[k];
        if constexpr (kBackward) grad.value[k] = grad_at[k];
      }
    }
  }
  gelu_pack<T, kWide, kBackward>(x, grad, dx, out);
  if (whole) {
    if constexpr (kBackward) store_pack<kWide>(dx_at, dx);
    if (e.out) store_pack<kWide>(out_at, out);
    return;
  }
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    if (k < count) {
      if constexpr (kBackward) dx_at[k] = dx.value[k];
      if (e.out) out_at[k] = out.value[k];
    }
  }
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename T>
struct SwigluForward {
  static void run(const Swiglu& s) {
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(s.stream);
    if (aligned(s.gate_up) && aligned(s.out) && s.width % kWide == 0) {
      swiglu_kernel<T, kWide><<<blocks_for(s.rows * s.width / kWide), kThreads, 0, stream>>>(s);
    } else {
      swiglu_kernel<T, 1><<<blocks_for(s.rows * s.width), kThreads, 0, stream>>>(s);
    }
    check_launch("swiglu");
  }
};

template <typename T>
struct SwigluBackward {
  static void run(const Swiglu& s) {
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(s.stream);
    if (aligned(s.gate_up) && aligned(s.grad) && aligned(s.d_gate_up) && aligned(s.out) && s.width % kWide == 0) {
      swiglu_backward_kernel<T, kWide><<<blocks_for(s.rows * s.width / kWide), kThreads, 0, stream>>>(s);
    } else {
      swiglu_backward_kernel<T, 1><<<blocks_for(s.rows * s.width), kThreads, 0, stream>>>(s);
    }
    check_launch("swiglu_backward");
  }
};

template <typename T, bool kBackward>
void run_gelu(const Gelu& e) {
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(e.stream);
  if (aligned(e.x) && aligned(e.grad) && aligned(e.dx) && aligned(e.out)) {
    gelu_kernel<T, kWide, kBackward><<<blocks_for((e.numel + kWide - 1) / kWide), kThreads, 0, stream>>>(e);
  } else {
    gelu_kernel<T, 1, kBackward><<<blocks_for(e.numel), kThreads, 0, stream>>>(e);
  }
  check_launch(kBackward ? "gelu_backward" : "gelu");
}
template <typename T>
struct GeluForward {
  static void run(const Gelu& e) { run_gelu<T, false>(e); }
};
template <typename T>
struct GeluBackward {
  static void run(const Gelu& e) { run_gelu<T, true>(e); }
};

}  // namespace

void swiglu(const Swiglu& swiglu) {
  for_element<SwigluForward>(swiglu.element, swiglu);
}
void swiglu_backward(const Swiglu& swiglu) {
  for_element<SwigluBackward>(swiglu.element, swiglu);
}
void gelu(const Gelu& gelu) {
  for_element<GeluForward>(gelu.element, gelu);
}
void gelu_backward(const Gelu& gelu) {
  for_element<GeluBackward>(gelu.element, gelu);
}

}  // namespace veil::launch
