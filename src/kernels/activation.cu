#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;
constexpr double kGeluInner = 1.5957691216057308, kGeluCubic = 0.044715;  // 2 sqrt(2 / pi)

// 1 / (1 + e^-x). What is rounded to two bytes takes the fast instructions, whose error is far
// below that rounding.
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
  return sigmoid<T>(Real(kGeluInner) * (x + Real(kGeluCubic) * x * x * x));
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
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                packs = s.width / kWide;
  if (index >= s.rows * packs) return;
  const PackPlace place = pack_place(index, packs);
  const T* gate_at =
      static_cast<const T*>(s.gate_up) + place.row * 2 * s.width + place.column * kWide;
  const auto gate = load_pack<kWide>(gate_at), up = load_pack<kWide>(gate_at + s.width);
  Real out[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real g = gate.at(k);
    out[k] = g * sigmoid<T>(g) * up.at(k);
  }
  store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, Pack<T, kWide>::of(out));
}

// All of a thread's elements are read before the first is written: results may lie on what they are
// made from.
template <typename T, int kWide>
__global__ void swiglu_backward_kernel(Swiglu s) {
  using Real = RealOf<T>;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                packs = s.width / kWide;
  if (index >= s.rows * packs) return;
  const PackPlace place = pack_place(index, packs);
  const int64_t at = place.row * 2 * s.width + place.column * kWide;
  const T* gate_at = static_cast<const T*>(s.gate_up) + at;
  const auto gate = load_pack<kWide>(gate_at), up = load_pack<kWide>(gate_at + s.width);
  const auto grad = load_pack<kWide>(static_cast<const T*>(s.grad) + index * kWide);
  Real d_gate[kWide], d_up[kWide], out[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real g = gate.at(k), u = up.at(k), d = grad.at(k);
    const Real gated = sigmoid<T>(g), silu = g * gated;
    d_gate[k] = d * u * (gated + silu * (Real(1) - gated));
    d_up[k] = d * silu;
    out[k] = silu * u;
  }
  T* d_gate_at = static_cast<T*>(s.d_gate_up) + at;
  store_pack<kWide>(d_gate_at, Pack<T, kWide>::of(d_gate));
  store_pack<kWide>(d_gate_at + s.width, Pack<T, kWide>::of(d_up));
  if (s.out) store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, Pack<T, kWide>::of(out));
}

template <typename T, int kWide, bool kBackward>
__device__ __forceinline__ void gelu_at(const Gelu& e, int64_t from) {
  using Real = RealOf<T>;
  const auto x = load_pack<kWide>(static_cast<const T*>(e.x) + from);
  Pack<T, kWide> grad = {};
  if constexpr (kBackward) grad = load_pack<kWide>(static_cast<const T*>(e.grad) + from);
  Real out[kWide], dx[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real value = x.at(k), gate = gelu_gate<T>(value);
    out[k] = value * gate;
    const Real inner = Real(kGeluInner) * (Real(1) + Real(3 * kGeluCubic) * value * value);
    dx[k] = grad.at(k) * (gate + value * gate * (Real(1) - gate) * inner);
  }
  if constexpr (kBackward) store_pack<kWide>(static_cast<T*>(e.dx) + from, Pack<T, kWide>::of(dx));
  if (e.out) store_pack<kWide>(static_cast<T*>(e.out) + from, Pack<T, kWide>::of(out));
}

template <typename T, int kWide, bool kBackward>
__global__ void gelu_kernel(Gelu e) {
  const int64_t from = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (from + kWide <= e.numel) return gelu_at<T, kWide, kBackward>(e, from);
  // what is left of the last pack
  for (int64_t j = from; j < e.numel; ++j) gelu_at<T, 1, kBackward>(e, j);
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
    if (aligned(s.gate_up) && aligned(s.grad) && aligned(s.d_gate_up) && aligned(s.out) &&
        s.width % kWide == 0) {
      swiglu_backward_kernel<T, kWide>
          <<<blocks_for(s.rows * s.width / kWide), kThreads, 0, stream>>>(s);
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
    gelu_kernel<T, kWide, kBackward>
        <<<blocks_for((e.numel + kWide - 1) / kWide), kThreads, 0, stream>>>(e);
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
