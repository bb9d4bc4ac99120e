#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 512;
constexpr int kSampleThreads = 256;
constexpr int kAtOnce = 4;  // packs read before the first is used
constexpr int64_t kIgnore = -100;

template <typename Real>
__device__ __forceinline__ Real lowest() {
  return static_cast<Real>(-__longlong_as_double(0x7FF0000000000000ll));
}

// e^x for x of about 0 and below. Logits of two bytes take the fast instruction.
template <typename T>
__device__ __forceinline__ RealOf<T> power(RealOf<T> x) {
  if constexpr (sizeof(T) == 2) {
    return __expf(x);
  } else {
    return exp(x);
  }
}

// A maximum and the sum of exponentials below it; -infinity and 0 of nothing.
template <typename T>
struct Running {
  using Real = RealOf<T>;
  Real greatest = lowest<Real>(), sum = 0;

  template <int kWide>
  __device__ __forceinline__ void take(const Pack<T, kWide>& pack) {
    Real upto = greatest;
#pragma unroll
    for (int k = 0; k < kWide; ++k) upto = pack.at(k) > upto ? pack.at(k) : upto;
    if (upto > greatest) {
      sum *= power<T>(greatest - upto);  // of -infinity: 0
      greatest = upto;
    }
    const Real below = greatest == lowest<Real>() ? Real(0) : greatest;
#pragma unroll
    for (int k = 0; k < kWide; ++k) sum += power<T>(pack.at(k) - below);
  }
  __device__ __forceinline__ void take(const Running& other) {
    const Real upto = other.greatest > greatest ? other.greatest : greatest;
    const Real below = upto == lowest<Real>() ? Real(0) : upto;
    sum = sum * power<T>(greatest - below) + other.sum * power<T>(other.greatest - below);
    greatest = upto;
  }
};

// A block per row.
template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads) scan_kernel(CrossEntropy e) {
  using Real = RealOf<T>;
  const int64_t row = blockIdx.x, target = e.targets[row];
  if (target == kIgnore) return;
  const T* logits = static_cast<const T*>(e.logits) + row * e.width;
  const int64_t packs = e.width / kWide;
  Running<T> running;
  int64_t p = threadIdx.x;
  for (; p + (kAtOnce - 1) * kThreads < packs; p += kAtOnce * kThreads) {
    Pack<T, kWide> pack[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      pack[i] = load_pack<kWide>(logits + (p + i * kThreads) * kWide);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) running.take(pack[i]);
  }
  for (; p < packs; p += kThreads) running.take(load_pack<kWide>(logits + p * kWide));

  __shared__ Real greatest[kThreads / 32], sum[kThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    Running<T> other;
    other.greatest = __shfl_xor_sync(0xFFFFFFFFu, running.greatest, distance);
    other.sum = __shfl_xor_sync(0xFFFFFFFFu, running.sum, distance);
    running.take(other);
  }
  if (threadIdx.x % 32 == 0) {
    greatest[threadIdx.x / 32] = running.greatest;
    sum[threadIdx.x / 32] = running.sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  Real* state = static_cast<Real*>(e.state) + 3 * row;
  Running<T> all;
  if (e.first != 0) {
    all.greatest = state[0];
    all.sum = state[1];
  } else {
    state[2] = lowest<Real>() - lowest<Real>();  // not a number until the target's column comes
  }
  for (int w = 0; w < kThreads / 32; ++w) {
    Running<T> other;
    other.greatest = greatest[w];
    other.sum = sum[w];
    all.take(other);
  }
  state[0] = all.greatest;
  state[1] = all.sum;
  if (target >= e.first && target - e.first < e.width) state[2] = real(logits[target - e.first]);
}

// A block per row, in place.
template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads) grad_kernel(CrossEntropy e) {
  using Real = RealOf<T>;
  const int64_t row = blockIdx.x, target = e.targets[row], packs = e.width / kWide;
  T* logits = static_cast<T*>(e.logits) + row * e.width;
  const Real weight = static_cast<const Real*>(e.weights)[row / (e.rows / e.batch)];
  if (target == kIgnore || weight == 0) {
    const Real zeros[kWide] = {};
    const auto nothing = Pack<T, kWide>::of(zeros);
    for (int64_t p = threadIdx.x; p < packs; p += kThreads)
      store_pack<kWide>(logits + p * kWide, nothing);
    return;
  }
  const Real* state = static_cast<const Real*>(e.state) + 3 * row;
  const Real greatest = state[0], scale = weight / state[1];
  const int64_t wanted = target - e.first;
  auto turn = [&](const Pack<T, kWide>& pack, int64_t p) {
    Real grad[kWide];
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const Real part = power<T>(pack.at(k) - greatest) * scale;
      grad[k] = p * kWide + k == wanted ? part - weight : part;
    }
    store_pack<kWide>(logits + p * kWide, Pack<T, kWide>::of(grad));
  };
  int64_t p = threadIdx.x;
  for (; p + (kAtOnce - 1) * kThreads < packs; p += kAtOnce * kThreads) {
    Pack<T, kWide> pack[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      pack[i] = load_pack<kWide>(logits + (p + i * kThreads) * kWide);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) turn(pack[i], p + i * kThreads);
  }
  for (; p < packs; p += kThreads) turn(load_pack<kWide>(logits + p * kWide), p);
}

// A sum over the block in a fixed order; the result is thread 0's.
template <typename Value>
__device__ Value sample_sum(Value value) {
  __shared__ Value lanes[kSampleThreads];
  lanes[threadIdx.x] = value;
  __syncthreads();
  for (int half = kSampleThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    __syncthreads();
  }
  return lanes[0];
}

template <typename Real>
__global__ void losses_kernel(CrossEntropy e, double* losses) {
  const int64_t tokens = e.rows / e.batch, begin = blockIdx.x * tokens;
  double sum = 0;
  for (int64_t row = begin + threadIdx.x; row < begin + tokens; row += kSampleThreads) {
    if (e.targets[row] == kIgnore) continue;
    const Real* state = static_cast<const Real*>(e.state) + 3 * row;
    sum += static_cast<double>(state[0]) + log(static_cast<double>(state[1])) -
           static_cast<double>(state[2]);
  }
  sum = sample_sum(sum);
  const Real weight = static_cast<const Real*>(e.weights)[blockIdx.x];
  if (threadIdx.x == 0) losses[blockIdx.x] = weight == 0 ? 0.0 : static_cast<double>(weight) * sum;
}

template <typename Real>
__global__ void weights_kernel(const int64_t* targets, Real* weights, int64_t tokens) {
  const int64_t begin = blockIdx.x * tokens;
  int64_t valid = 0;
  for (int64_t row = begin + threadIdx.x; row < begin + tokens; row += kSampleThreads)
    valid += targets[row] != kIgnore;
  valid = sample_sum(valid);
  if (threadIdx.x == 0) weights[blockIdx.x] = valid ? Real(1) / static_cast<Real>(valid) : Real(0);
}

template <typename T>
struct Scan {
  static void run(const CrossEntropy& e) {
    constexpr int kWide = kWideOf<T>;
    const auto rows = static_cast<unsigned>(e.rows);
    const auto stream = static_cast<cudaStream_t>(e.stream);
    if (aligned(e.logits) && e.width % kWide == 0) {
      scan_kernel<T, kWide><<<rows, kThreads, 0, stream>>>(e);
    } else {
      scan_kernel<T, 1><<<rows, kThreads, 0, stream>>>(e);
    }
    check_launch("cross_entropy_scan");
  }
};

template <typename T>
struct Grad {
  static void run(const CrossEntropy& e) {
    constexpr int kWide = kWideOf<T>;
    const auto rows = static_cast<unsigned>(e.rows);
    const auto stream = static_cast<cudaStream_t>(e.stream);
    if (aligned(e.logits) && e.width % kWide == 0) {
      grad_kernel<T, kWide><<<rows, kThreads, 0, stream>>>(e);
    } else {
      grad_kernel<T, 1><<<rows, kThreads, 0, stream>>>(e);
    }
    check_launch("cross_entropy_grad");
  }
};

}  // namespace

void cross_entropy_scan(const CrossEntropy& entropy) {
  for_element<Scan>(entropy.element, entropy);
}
void cross_entropy_grad(const CrossEntropy& entropy) {
  for_element<Grad>(entropy.element, entropy);
}

void cross_entropy_losses(const CrossEntropy& e, double* losses) {
  const auto batch = static_cast<unsigned>(e.batch);
  const auto stream = static_cast<cudaStream_t>(e.stream);
  if (e.element == Element::fp64) {
    losses_kernel<double><<<batch, kSampleThreads, 0, stream>>>(e, losses);
  } else {
    losses_kernel<float><<<batch, kSampleThreads, 0, stream>>>(e, losses);
  }
  check_launch("cross_entropy_losses");
}

void token_weights(const int64_t* targets, void* weights, Element element, int64_t batch,
                   int64_t tokens, void* on_stream) {
  const auto blocks = static_cast<unsigned>(batch);
  const auto stream = static_cast<cudaStream_t>(on_stream);
  if (element == Element::fp64) {
    weights_kernel<<<blocks, kSampleThreads, 0, stream>>>(targets, static_cast<double*>(weights),
                                                          tokens);
  } else {
    weights_kernel<<<blocks, kSampleThreads, 0, stream>>>(targets, static_cast<float*>(weights),
                                                          tokens);
  }
  check_launch("token_weights");
}

}  // namespace veil::launch
