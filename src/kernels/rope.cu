#include "kernels/strip_sums.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 8;   // heads that share a thread's sines and cosines
constexpr int kAtOnce = 4;  // of which so many are read before the first is written

// fp64 takes the angle as it is. Otherwise it is reduced to a fraction of a turn in fp64, where far
// positions still have their digits.
__device__ __forceinline__ void turn_by(double angle, double& sine, double& cosine) {
  sincos(angle, &sine, &cosine);
}
__device__ __forceinline__ void turn_by(double angle, float& sine, float& cosine) {
  const double turns = angle * 0.15915494309189535;  // 1 / (2 pi)
  sincospif(static_cast<float>(2 * (turns - rint(turns))), &sine, &cosine);
}

template <typename Real, int kWide>
struct Turn {
  Real sine[kWide], cosine[kWide];

  __device__ __forceinline__ void at(const RopeFrequencies& frequencies, int64_t position, int pair,
                                     Real sign) {
    const Real scale = static_cast<Real>(frequencies.scale);
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      turn_by(static_cast<double>(position) * frequencies.value[pair + k], sine[k], cosine[k]);
      sine[k] *= sign * scale;
      cosine[k] *= scale;
    }
  }
  template <typename T>
  __device__ __forceinline__ void apply(Pack<T, kWide>& low, Pack<T, kWide>& high) const {
    Real turned_low[kWide], turned_high[kWide];
#pragma unroll
    for (int k = 0; k < kWide; ++k) {
      const Real a = low.at(k), b = high.at(k);
      turned_low[k] = a * cosine[k] - b * sine[k];
      turned_high[k] = b * cosine[k] + a * sine[k];
    }
    low = Pack<T, kWide>::of(turned_low);
    high = Pack<T, kWide>::of(turned_high);
  }
};

// Which token and which pairs of a head a thread takes: neighbours take neighbouring pairs, then
// the next token. blockIdx.y chooses the heads.
template <int kWide>
struct Place {
  int64_t row, sample, token;  // row = sample * tokens + token
  int pair;

  __device__ __forceinline__ Place(int64_t tokens, int64_t pairs) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t packs = pairs / kWide;
    row = index / packs;
    pair = static_cast<int>(index - row * packs) * kWide;
    sample = row / tokens;
    token = row - sample * tokens;
  }
};

template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads) rope_kernel(Rope r) {
  using Real = RealOf<T>;
  const int64_t pairs = r.frequencies.count;
  const Place<kWide> place(r.tokens, pairs);
  if (place.row >= r.batch * r.tokens) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kHeads;
  const int64_t end = begin + kHeads < r.turned ? begin + kHeads : r.turned;
  Turn<Real, kWide> turn;
  turn.at(r.frequencies, place.token, place.pair, Real(1));
  T* at = static_cast<T*>(r.qkv) + (place.row * r.heads + begin) * r.head_dim + place.pair;
  for (int64_t h = begin; h < end; h += kAtOnce, at += kAtOnce * r.head_dim) {
    Pack<T, kWide> low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (h + i < end) {
        low[i] = load_pack<kWide>(at + i * r.head_dim);
        high[i] = load_pack<kWide>(at + i * r.head_dim + pairs);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (h + i < end) {
        turn.apply(low[i], high[i]);
        store_pack<kWide>(at + i * r.head_dim, low[i]);
        store_pack<kWide>(at + i * r.head_dim + pairs, high[i]);
      }
    }
  }
}

// The first token of a head of queries, keys and values, and the distance to the next one.
template <typename T>
struct HeadTokens {
  const T* first;
  int64_t stride;
};
template <typename T>
__device__ __forceinline__ HeadTokens<T> head_tokens(const RopeBackward& r, int64_t sample,
                                                     int64_t head) {
  const bool of_q = head < r.heads, of_k = !of_q && head < r.heads + r.kv_heads;
  const RopeSource& source = of_q ? r.dq : of_k ? r.dk : r.dv;
  const int64_t own = of_q ? head : of_k ? head - r.heads : head - r.heads - r.kv_heads;
  return {
      static_cast<const T*>(source.data) + sample * source.batch_stride + own * source.head_stride,
      source.token_stride};
}

template <typename T, int kWide>
__global__ void __launch_bounds__(kThreads) rope_backward_kernel(RopeBackward r) {
  using Real = RealOf<T>;
  const int64_t pairs = r.head_dim / 2, all = r.heads + 2 * r.kv_heads;
  const Place<kWide> place(r.tokens, pairs);
  if (place.row >= r.batch * r.tokens) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * kHeads;
  const int64_t end = begin + kHeads < all ? begin + kHeads : all;
  // Elements behind the pairs that turn are copied, two halves of them at a time.
  const int64_t turning = r.frequencies.count;
  const bool turns = place.pair < turning;
  const int64_t low_at = turns ? place.pair : place.pair + turning,
                high_at = place.pair + (turns ? turning : pairs);
  const int64_t turned = turns ? r.heads + r.kv_heads : 0;
  Turn<Real, kWide> turn;
  if (begin < turned) turn.at(r.frequencies, place.token, place.pair, Real(-1));
  T* to = static_cast<T*>(r.dqkv) + (place.row * all + begin) * r.head_dim;
  for (int64_t h = begin; h < end; h += kAtOnce, to += kAtOnce * r.head_dim) {
    Pack<T, kWide> low[kAtOnce], high[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t head = h + i;
      if (head < end) {
        const HeadTokens<T> tokens = head_tokens<T>(r, place.sample, head);
        const T* from = tokens.first + place.token * tokens.stride;
        low[i] = load_pack<kWide>(from + low_at);
        high[i] = load_pack<kWide>(from + high_at);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (h + i < end) {
        if (h + i < turned) turn.apply(low[i], high[i]);
        store_pack<kWide>(to + i * r.head_dim + low_at, low[i]);
        store_pack<kWide>(to + i * r.head_dim + high_at, high[i]);
      }
    }
  }
}

dim3 grid_for(int64_t rows, int64_t packs, int64_t heads) {
  return dim3(static_cast<unsigned>((rows * packs + kThreads - 1) / kThreads),
              static_cast<unsigned>((heads + kHeads - 1) / kHeads));
}

template <typename T>
struct Forward {
  static void run(const Rope& r) {
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(r.stream);
    const int64_t rows = r.batch * r.tokens, pairs = r.frequencies.count;
    if (aligned(r.qkv) && pairs % kWide == 0 && r.head_dim % kWide == 0) {
      rope_kernel<T, kWide><<<grid_for(rows, pairs / kWide, r.turned), kThreads, 0, stream>>>(r);
    } else {
      rope_kernel<T, 1><<<grid_for(rows, pairs, r.turned), kThreads, 0, stream>>>(r);
    }
    check_launch("rope");
  }
};

template <int kWide>
bool packs_fit(const RopeSource& source) {
  return aligned(source.data) && source.batch_stride % kWide == 0 &&
         source.head_stride % kWide == 0 && source.token_stride % kWide == 0;
}

template <typename T>
bool packs_fit(const RopeBackward& r) {
  constexpr int kWide = kWideOf<T>;
  return aligned(r.dqkv) && packs_fit<kWide>(r.dq) && packs_fit<kWide>(r.dk) &&
         packs_fit<kWide>(r.dv);
}

template <typename T>
struct Backward {
  static void run(const RopeBackward& r) {
    constexpr int kWide = kWideOf<T>;
    const auto stream = static_cast<cudaStream_t>(r.stream);
    const int64_t rows = r.batch * r.tokens, pairs = r.head_dim / 2,
                  heads = r.heads + 2 * r.kv_heads;
    if (packs_fit<T>(r) && pairs % kWide == 0 && r.frequencies.count % kWide == 0) {
      rope_backward_kernel<T, kWide>
          <<<grid_for(rows, pairs / kWide, heads), kThreads, 0, stream>>>(r);
    } else {
      rope_backward_kernel<T, 1><<<grid_for(rows, pairs, heads), kThreads, 0, stream>>>(r);
    }
    check_launch("rope_backward");
  }
};

// Heads of three tensors, packed token by token.
template <typename T>
struct HeadRows {
  RopeBackward r;

  struct Here {
    HeadTokens<T> from;
    T* to;
    int64_t width;
    template <int kWide>
    __device__ __forceinline__ Pack<T, kWide> read(int64_t row) const {
      return load_pack<kWide>(from.first + row * from.stride);
    }
    template <int kWide>
    __device__ __forceinline__ Pack<T, kWide> store(int64_t row, const Pack<T, kWide>& it) const {
      store_pack<kWide>(to + row * width, it);
      return it;
    }
  };
  __device__ __forceinline__ Here at(int64_t sample, int64_t column) const {
    const int64_t width = (r.heads + 2 * r.kv_heads) * r.head_dim, head = column / r.head_dim;
    HeadTokens<T> from = head_tokens<T>(r, sample, head);
    from.first += column - head * r.head_dim;
    return {from, static_cast<T*>(r.dqkv) + sample * r.tokens * width + column, width};
  }
};
template <typename T>
struct PackHeads {
  static void run(const RopeBackward& r) {
    const bool packs = packs_fit<T>(r) && r.head_dim % kWideOf<T> == 0;
    sum_strips<T>(HeadRows<T>{r}, r.batch, r.tokens, (r.heads + 2 * r.kv_heads) * r.head_dim, packs,
                  r.sums, r.partial, r.stream);
  }
};

}  // namespace

void rope(const Rope& rope) {
  for_element<Forward>(rope.element, rope);
}
void rope_backward(const RopeBackward& rope) {
  for_element<Backward>(rope.element, rope);
}
void pack_heads(const RopeBackward& rope) {
  for_element<PackHeads>(rope.element, rope);
}

}  // namespace veil::launch
