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
// Otherwise `wanted` is a part of all tokens' mass, which the first round finds.
template <typename T>
__device__ int64_t rank_that_reaches(const TokenRow<T>& row, const uint32_t* table, bool by_count,
                                     uint64_t& wanted, double top_p, int64_t last_rank,
                                     unsigned long long* bins, uint64_t& before) {
  __shared__ uint64_t found_before;
  __shared__ int found_bin;
  int64_t prefix = 0;
  before = 0;
  for (int shift = 24; shift >= 0; shift -= 12) {
    for (int b = threadIdx.x; b < kBins; b += kThreads) bins[b] = 0;
    __syncthreads();
    for (int64_t v = threadIdx.x; v < row.vocabulary; v += kThreads) {
      const int64_t h = row.halvings(v), rank = token_rank(h);
      if (h >= kFarBelow || rank >> (shift + 12) != prefix || rank > last_rank) continue;
      atomicAdd(&bins[(rank >> shift) & (kBins - 1)],
                static_cast<unsigned long long>(by_count ? 1 : token_mass(h, table)));
    }
    __syncthreads();
    // Each thread adds up neighbouring bins; the one whose bins cross the wanted sum answers.
    constexpr int kOwn = kBins / kThreads;
    uint64_t own = 0, total;
    for (int k = 0; k < kOwn; ++k) own += bins[threadIdx.x * kOwn + k];
    uint64_t sum = before + block_scan(own, total);
    if (!by_count && shift == 24) wanted = wanted_mass(total, top_p);
    if (threadIdx.x == 0) {
      found_bin = wanted <= before ? 0 : kBins - 1;
      found_before = wanted <= before ? before : before + total - bins[kBins - 1];
    }
    __syncthreads();
    if (sum < wanted && sum + own >= wanted) {
      int bin = threadIdx.x * kOwn;
      while (sum + bins[bin] < wanted) sum += bins[bin++];
      found_bin = bin;
      found_before = sum;
    }
    __syncthreads();
    before = found_before;
    prefix = prefix << 12 | found_bin;
    __syncthreads();
  }
  return prefix;
}

__device__ __forceinline__ uint64_t warp_total(uint64_t value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

// Sums over the lanes from this one on.
__device__ __forceinline__ uint64_t sum_from_lane(uint64_t value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t other = __shfl_down_sync(0xFFFFFFFFu, value, distance);
    if (static_cast<int>(threadIdx.x % 32) + distance < 32) value += other;
  }
  return value;
}

// What is drawn from: which tokens stay. Each warp has a stretch of neighbouring tokens.
struct Cut {
  int64_t last_rank, border;  // of top-k; of top-p
  uint64_t at_border;         // mass that tokens at the border may have, the last by index first
  bool by_mass;               // top-p cuts at all
};

// Calls take(v, mass, lane's own) for the tokens of a warp's stretch from the last to the first, 32
// at a time; `later` is the mass at the border of the tokens behind the stretch.
template <typename T, typename Take>
__device__ __forceinline__ void for_each_kept(const TokenRow<T>& row, const uint32_t* table,
                                              const Cut& cut, int64_t begin, int64_t end,
                                              uint64_t later, Take&& take) {
  for (int64_t first = begin + (end - begin - 1) / 32 * 32; first >= begin; first -= 32) {
    const int64_t v = first + threadIdx.x % 32;
    const int64_t h = v < end ? row.halvings(v) : kFarBelow, rank = token_rank(h);
    const bool in = v < end && rank <= cut.last_rank && rank <= cut.border;
    uint64_t mass = in ? token_mass(h, table) : 0;
    const bool at_border = cut.by_mass && in && rank == cut.border;
    if (__any_sync(0xFFFFFFFFu, at_border)) {
      const uint64_t own = at_border ? mass : 0, with_later = sum_from_lane(own);
      if (at_border && later + with_later - own >= cut.at_border) mass = 0;
      later += __shfl_sync(0xFFFFFFFFu, with_later, 0);
    }
    if (!take(v, mass)) return;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) draw_kernel(TokenDraw d) {
  __shared__ unsigned long long bins[kBins];
  __shared__ uint32_t table[kMassTable];
  __shared__ uint64_t warp_border[kWarps], warp_mass[kWarps];
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
  for (int i = threadIdx.x; i < kMassTable; i += kThreads) table[i] = mass_power(i);
  const Largest largest = block_largest(own);
  if (d.rule.temperature <= 0) {
    if (threadIdx.x == 0) d.tokens[sample] = largest.index;
    return;
  }
  row.largest = largest.logit;
  row.scale = halvings_per_unit(d.rule);

  Cut cut{kLastRank, kLastRank, 0, d.rule.top_p < 1};
  uint64_t before = 0, wanted = 0;
  if (d.rule.top_k > 0 && d.rule.top_k < d.vocabulary) {
    wanted = static_cast<uint64_t>(d.rule.top_k);
    cut.last_rank = rank_that_reaches(row, table, true, wanted, 0, kLastRank, bins, before);
  }
  if (cut.by_mass) {
    cut.border =
        rank_that_reaches(row, table, false, wanted, d.rule.top_p, cut.last_rank, bins, before);
    cut.at_border = wanted > before ? wanted - before : 0;
  }
  const int warp = threadIdx.x / 32;
  const int64_t each = (d.vocabulary + kWarps - 1) / kWarps, begin = min(d.vocabulary, warp * each),
                end = min(d.vocabulary, begin + each);
  // Mass at the border behind each warp's tokens, then what stays of each warp's.
  if (cut.by_mass) {
    uint64_t sum = 0;
    for (int64_t v = begin + threadIdx.x % 32; v < end; v += 32) {
      const int64_t h = row.halvings(v);
      if (token_rank(h) == cut.border && cut.border <= cut.last_rank) sum += token_mass(h, table);
    }
    sum = warp_total(sum);
    if (threadIdx.x % 32 == 0) warp_border[warp] = sum;
  }
  __syncthreads();
  uint64_t behind = 0;
  for (int w = warp + 1; cut.by_mass && w < kWarps; ++w) behind += warp_border[w];
  uint64_t sum = 0;
  if (begin < end)
    for_each_kept(row, table, cut, begin, end, behind, [&](int64_t, uint64_t mass) {
      sum += mass;
      return true;
    });
  sum = warp_total(sum);
  if (threadIdx.x % 32 == 0) warp_mass[warp] = sum;
  __syncthreads();
  uint64_t first = 0, total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) first += warp_mass[w];
    total += warp_mass[w];
  }
  if (total == 0) {  // nothing was left: the most likely one
    if (threadIdx.x == 0) d.tokens[sample] = largest.index;
    return;
  }
  const uint64_t drawn = drawn_mass(total, d.seed, d.samples[sample], d.places[sample]);
  if (drawn < first || drawn >= first + sum) return;
  uint64_t rest = first + sum;  // mass of the tokens before those that come next
  for_each_kept(row, table, cut, begin, end, behind, [&](int64_t v, uint64_t mass) {
    const uint64_t from = sum_from_lane(mass), all = __shfl_sync(0xFFFFFFFFu, from, 0);
    // the token covers [rest - from, rest - from + mass)
    if (mass > 0 && drawn >= rest - from && drawn < rest - from + mass) d.tokens[sample] = v;
    rest -= all;
    return drawn < rest;
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
