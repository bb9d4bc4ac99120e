#include "kernels/strip_sums.cuh"

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

// Phi(x), by which the exact GELU opens.
template <typename T>
__device__ __forceinline__ RealOf<T> normal_gate(RealOf<T> x) {
  using Real = RealOf<T>;
  return Real(0.5) * (Real(1) + erf(x * Real(0.7071067811865476)));
}

// How a gate opens: out = x * gate(x), and d out / dx = slope(x, gate(x)).
enum class Gate { silu, tanh_gelu, exact_gelu };
template <typename T, Gate kGate>
__device__ __forceinline__ RealOf<T> gate_of(RealOf<T> x) {
  if constexpr (kGate == Gate::silu) return sigmoid<T>(x);
  if constexpr (kGate == Gate::tanh_gelu) return gelu_gate<T>(x);
  if constexpr (kGate == Gate::exact_gelu) return normal_gate<T>(x);
}
template <typename T, Gate kGate>
__device__ __forceinline__ RealOf<T> slope_of(RealOf<T> x, RealOf<T> gate) {
  using Real = RealOf<T>;
  if constexpr (kGate == Gate::silu) return gate + x * gate * (Real(1) - gate);
  if constexpr (kGate == Gate::tanh_gelu) {
    const Real inner = Real(kGeluInner) * (Real(1) + Real(3 * kGeluCubic) * x * x);
    return gate + x * gate * (Real(1) - gate) * inner;
  }
  if constexpr (kGate == Gate::exact_gelu)  // 1 / sqrt(2 pi)
    return gate + x * Real(0.3989422804014327) * exp(Real(-0.5) * x * x);
}

// Where pack `index` of a [rows, width] matrix stands; 32-bit division if it will do.
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

template <typename T, int kWide, Gate kGate>
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
    out[k] = g * gate_of<T, kGate>(g) * up.at(k);
  }
  store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, Pack<T, kWide>::of(out));
}

// All of a thread's elements are read before the first is written: results may lie on what they are
// made from.
template <typename T, int kWide, Gate kGate>
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
    const Real gated = gate_of<T, kGate>(g), opened = g * gated;
    d_gate[k] = d * u * slope_of<T, kGate>(g, gated);
    d_up[k] = d * opened;
    out[k] = opened * u;
  }
  T* d_gate_at = static_cast<T*>(s.d_gate_up) + at;
  store_pack<kWide>(d_gate_at, Pack<T, kWide>::of(d_gate));
  store_pack<kWide>(d_gate_at + s.width, Pack<T, kWide>::of(d_up));
  if (s.out) store_pack<kWide>(static_cast<T*>(s.out) + index * kWide, Pack<T, kWide>::of(out));
}

template <typename T, int kWide>
struct GeluRead {
  Pack<T, kWide> x, grad;
};
template <int kWide, typename T>
__device__ __forceinline__ GeluRead<T, kWide> read_gelu(const Gelu& e, int64_t from, T) {
  GeluRead<T, kWide> read = {load_pack<kWide>(static_cast<const T*>(e.x) + from), {}};
  if (e.grad) read.grad = load_pack<kWide>(static_cast<const T*>(e.grad) + from);
  return read;
}
// Returns dx.
template <typename T, int kWide, bool kBackward, Gate kGate>
__device__ __forceinline__ Pack<T, kWide> store_gelu(const Gelu& e, int64_t from,
                                                     const GeluRead<T, kWide>& read) {
  using Real = RealOf<T>;
  Real out[kWide], dx[kWide];
#pragma unroll
  for (int k = 0; k < kWide; ++k) {
    const Real value = read.x.at(k), gate = gate_of<T, kGate>(value);
    out[k] = value * gate;
    dx[k] = read.grad.at(k) * slope_of<T, kGate>(value, gate);
  }
  const auto pack = Pack<T, kWide>::of(dx);
  if constexpr (kBackward) store_pack<kWide>(static_cast<T*>(e.dx) + from, pack);
  if (e.out) store_pack<kWide>(static_cast<T*>(e.out) + from, Pack<T, kWide>::of(out));
  return pack;
}

template <typename T, int kWide, bool kBackward, Gate kGate>
__device__ __forceinline__ void gelu_at(const Gelu& e, int64_t from) {
  store_gelu<T, kWide, kBackward, kGate>(e, from, read_gelu<kWide>(e, from, T()));
}

template <typename T, int kWide, bool kBackward, Gate kGate>
__global__ void gelu_kernel(Gelu e) {
  const int64_t from = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (from + kWide <= e.numel) return gelu_at<T, kWide, kBackward, kGate>(e, from);
  // what is left of the last pack
  for (int64_t j = from; j < e.numel; ++j) gelu_at<T, 1, kBackward, kGate>(e, j);
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename T, Gate kGate>
void run_gated(const Swiglu& s) {
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(s.stream);
  if (aligned(s.gate_up) && aligned(s.out) && s.width % kWide == 0) {
    swiglu_kernel<T, kWide, kGate>
        <<<blocks_for(s.rows * s.width / kWide), kThreads, 0, stream>>>(s);
  } else {
    swiglu_kernel<T, 1, kGate><<<blocks_for(s.rows * s.width), kThreads, 0, stream>>>(s);
  }
  check_launch("swiglu");
}
template <typename T>
struct SwigluForward {
  static void run(const Swiglu& s) {
    s.gelu ? run_gated<T, Gate::tanh_gelu>(s) : run_gated<T, Gate::silu>(s);
  }
};

template <typename T, Gate kGate>
void run_gated_backward(const Swiglu& s) {
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(s.stream);
  if (aligned(s.gate_up) && aligned(s.grad) && aligned(s.d_gate_up) && aligned(s.out) &&
      s.width % kWide == 0) {
    swiglu_backward_kernel<T, kWide, kGate>
        <<<blocks_for(s.rows * s.width / kWide), kThreads, 0, stream>>>(s);
  } else {
    swiglu_backward_kernel<T, 1, kGate><<<blocks_for(s.rows * s.width), kThreads, 0, stream>>>(s);
  }
  check_launch("swiglu_backward");
}
template <typename T>
struct SwigluBackward {
  static void run(const Swiglu& s) {
    s.gelu ? run_gated_backward<T, Gate::tanh_gelu>(s) : run_gated_backward<T, Gate::silu>(s);
  }
};

template <typename T, bool kBackward, Gate kGate>
void run_opened(const Gelu& e) {
  constexpr int kWide = kWideOf<T>;
  const auto stream = static_cast<cudaStream_t>(e.stream);
  if (aligned(e.x) && aligned(e.grad) && aligned(e.dx) && aligned(e.out)) {
    gelu_kernel<T, kWide, kBackward, kGate>
        <<<blocks_for((e.numel + kWide - 1) / kWide), kThreads, 0, stream>>>(e);
  } else {
    gelu_kernel<T, 1, kBackward, kGate><<<blocks_for(e.numel), kThreads, 0, stream>>>(e);
  }
  check_launch(kBackward ? "gelu_backward" : "gelu");
}
template <typename T, bool kBackward>
void run_gelu(const Gelu& e) {
  e.exact ? run_opened<T, kBackward, Gate::exact_gelu>(e)
          : run_opened<T, kBackward, Gate::tanh_gelu>(e);
}
// Backward by strips of rows, for sums.
template <typename T>
struct GeluRows {
  Gelu e;

  struct Here {
    const Gelu& e;
    int64_t first;
    template <int kWide>
    __device__ __forceinline__ GeluRead<T, kWide> read(int64_t row) const {
      return read_gelu<kWide>(e, first + row * e.width, T());
    }
    template <int kWide>
    __device__ __forceinline__ Pack<T, kWide> store(int64_t row,
                                                    const GeluRead<T, kWide>& it) const {
      return store_gelu<T, kWide, true, Gate::tanh_gelu>(e, first + row * e.width, it);
    }
  };
  __device__ __forceinline__ Here at(int64_t sample, int64_t column) const {
    return {e, sample * e.tokens * e.width + column};
  }
};
template <typename T>
struct GeluBackwardSummed {
  static void run(const Gelu& e) {
    const bool packs = aligned(e.x) && aligned(e.grad) && aligned(e.dx) && aligned(e.out) &&
                       e.width % kWideOf<T> == 0;
    sum_strips<T>(GeluRows<T>{e}, e.batch, e.tokens, e.width, packs, e.sums, e.partial, e.stream);
  }
};
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
void gelu_backward_summed(const Gelu& gelu) {
  for_element<GeluBackwardSummed>(gelu.element, gelu);
}

}  // namespace veil::launch
