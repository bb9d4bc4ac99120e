#include "kernels/launch_decode.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32, kBins = 4096;

// An order of floats in whole numbers; not a number comes first.
__device__ __forceinline__ float ordered(float x) {
  return x == x ? x : -INFINITY;
}

struct Largest {
  float logit;
  int64_t index;
};
__device__ __forceinline__ Largest larger(const Largest& a, const Largest& b) {
  return b.logit > a.logit || (b.logit == a.logit && b.index < a.index) ? b : a;
}

__device__ Largest block_largest(Largest own) {
  __shared__ float logits[kWarps];
  __shared__ int64_t indices[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    const Largest other{__shfl_xor_sync(0xFFFFFFFFu, own.logit, distance),
                        __shfl_xor_sync(0xFFFFFFFFu, own.index, distance)};
    own = larger(own, other);
  }
  if (threadIdx.x % 32 == 0) {
    logits[threadIdx.x / 32] = own.logit;
    indices[threadIdx.x / 32] = own.index;
  }
  __syncthreads();
  Largest all{logits[0], indices[0]};
  for (int w = 1; w < kWarps; ++w) all = larger(all, {logits[w], indices[w]});
  __syncthreads();
  return all;
}

// The sum over the threads before this one, and in `total` that over all.
__device__ uint64_t block_scan(uint64_t own, uint64_t& total) {
  __shared__ uint64_t sums[kWarps];
  uint64_t inclusive = own;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_up_sync(0xFFFFFFFFu, inclusive, distance);
    if (lane >= distance) inclusive += other;
  }
  if (lane == 31) sums[warp] = inclusive;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += sums[w];
    total += sums[w];
  }
  __syncthreads();
  return before + inclusive - own;
}

template <typename T>
struct TokenRow {
  const T* logits;
  const uint8_t* seen;
  int64_t vocabulary;
  float penalty, largest;
  double scale;

  __device__ __forceinline__ float logit(int64_t v) const {
    const float x = static_cast<float>(real(logits[v]));
    return ordered(seen ? penalised(x, seen[v], penalty) : x);
  }
  __device__ __forceinline__ int64_t halvings(int64_t v) const {
    return halvings_below(largest, logit(v), scale);
  }
};

// As Row::rank_that_reaches of the CPU's, by the whole block. `by_count`: every token weighs 1.
template <typename T>
__device__ int64_t rank_that_reaches(const TokenRow<T>& row, uint64_t wanted, bool by_count,
                                     int64_t last_rank, unsigned long long* bins,
                                     uint64_t& before) {
  int64_t prefix = 0;
  before = 0;
  for (int shift = 24; shift >= 0; shift -= 12) {
    for (int b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
    __syncthreads();
    for (int64_t v = threadIdx.x; v < row.vocabulary; v += kThreads) {
      const int64_t h = row.halvings(v), rank = token_rank(h);
      if (h >= kFarBelow || rank >> (shift + 12) != prefix || rank > last_rank) continue;
      atomicAdd(&bins[(rank >> shift) & (kBins - 1)],
                static_cast<unsigned long long>(by_count ? 1 : token_mass(h)));
    }
    __syncthreads();
    // Each thread adds up neighbouring bins; the one whose bins cross the wanted sum answers.
    constexpr int kOwn = kBins / kThreads;
    uint64_t own = 0, total;
    for (int k = 0; k < kOwn; ++k) own += bins[threadIdx.x * kOwn + k];
    uint64_t sum = before + block_scan(own, total);
    __shared__ uint64_t found_before;
    __shared__ int found_bin;
    if (threadIdx.x == 0) {
      found_bin = kBins - 1;
      found_before = before + total - bins[kBins - 1];
    }
    __syncthreads();
    if (sum < wanted && sum + own >= wanted) {
      int bin = threadIdx.x * kOwn;
      while (sum + bins[bin] < wanted) sum += bins[bin++];
      found_bin = bin;
      found_before = sum;
    } else if (threadIdx.x == 0 && wanted <= before) {
      found_bin = 0;
      found_before = before;
    }
    __syncthreads();
    before = found_before;
    prefix = prefix << 12 | found_bin;
    __syncthreads();
  }
  return prefix;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) draw_kernel(TokenDraw d) {
  __shared__ unsigned long long bins[kBins];
  const int64_t sample = blockIdx.x;
  TokenRow<T> row{static_cast<const T*>(d.logits) + sample * d.vocabulary,
                  d.seen ? d.seen + sample * d.vocabulary : nullptr,
                  d.vocabulary,
                  d.rule.repetition_penalty,
                  0,
                  0};
  Largest own{-INFINITY, d.vocabulary - 1};
  for (int64_t v = threadIdx.x; v < d.vocabulary; v += kThreads)
    own = larger(own, {row.logit(v), v});
  const Largest largest = block_largest(own);
  if (d.rule.temperature <= 0) {
    if (threadIdx.x == 0) d.tokens[sample] = largest.index;
    return;
  }
  row.largest = largest.logit;
  row.scale = halvings_per_unit(d.rule);

  uint64_t before = 0;
  int64_t last_rank = kLastRank;
  if (d.rule.top_k > 0 && d.rule.top_k < d.vocabulary)
    last_rank =
        rank_that_reaches(row, static_cast<uint64_t>(d.rule.top_k), true, kLastRank, bins, before);
  // Neighbouring tokens belong to one thread, so that sums run by index.
  const int64_t each = (d.vocabulary + kThreads - 1) / kThreads,
                begin = min(d.vocabulary, threadIdx.x * each),
                end = min(d.vocabulary, begin + each);
  int64_t border = kLastRank;
  uint64_t at_border = ~uint64_t{0}, wanted = 0, total;  // mass that tokens at the border may have
  if (d.rule.top_p < 1) {
    uint64_t sum = 0;
    for (int64_t v = threadIdx.x; v < d.vocabulary; v += kThreads) {
      const int64_t h = row.halvings(v);
      if (token_rank(h) <= last_rank) sum += token_mass(h);
    }
    block_scan(sum, total);
    wanted = wanted_mass(total, d.rule.top_p);
    border = rank_that_reaches(row, wanted, false, last_rank, bins, before);
    at_border = wanted > before ? wanted - before : 0;
  }
  // Mass at the border of the tokens behind this thread's: those stay first.
  uint64_t behind = 0;
  if (d.rule.top_p < 1) {
    uint64_t mine = 0, all;
    for (int64_t v = begin; v < end; ++v) {
      const int64_t h = row.halvings(v);
      if (token_rank(h) == border && border <= last_rank) mine += token_mass(h);
    }
    const uint64_t ahead = block_scan(mine, all);
    behind = all - ahead - mine;
  }
  auto mass_of = [&](int64_t v, uint64_t later) -> uint64_t {
    const int64_t h = row.halvings(v), rank = token_rank(h);
    if (rank > last_rank || rank > border) return 0;
    if (d.rule.top_p < 1 && rank == border && later >= at_border) return 0;
    return token_mass(h);
  };
  // From the last of the thread's tokens to the first, as the border wants it.
  auto for_each = [&](auto&& take) {
    uint64_t later = behind;
    for (int64_t v = end; v-- > begin;) {
      take(v, mass_of(v, later));
      if (d.rule.top_p < 1) {
        const int64_t h = row.halvings(v);
        if (token_rank(h) == border) later += token_mass(h);
      }
    }
  };
  uint64_t mine = 0;
  for_each([&](int64_t, uint64_t mass) { mine += mass; });
  const uint64_t first = block_scan(mine, total);
  if (total == 0) {  // nothing was left: the most likely one
    if (threadIdx.x == 0) d.tokens[sample] = largest.index;
    return;
  }
  const uint64_t drawn = drawn_mass(total, d.seed, d.samples[sample], d.places[sample]);
  if (drawn < first || drawn >= first + mine) return;
  uint64_t sum = first + mine;
  for_each([&](int64_t v, uint64_t mass) {
    sum -= mass;
    if (mass > 0 && drawn >= sum && drawn < sum + mass) d.tokens[sample] = v;
  });
}

template <typename T>
struct Draw {
  static void run(const TokenDraw& d) {
    draw_kernel<T>
        <<<static_cast<unsigned>(d.batch), kThreads, 0, static_cast<cudaStream_t>(d.stream)>>>(d);
    check_launch("draw_tokens");
  }
};

}  // namespace

void draw_tokens(const TokenDraw& draw) {
  for_element<Draw>(draw.element, draw);
}

}  // namespace veil::launch
