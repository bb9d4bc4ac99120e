#include "kernels/tiled_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "kernels/lane_sum.h"
#include "kernels/tensor_arguments.h"

namespace veil {
namespace {

constexpr int64_t kTile = 64;  // queries, and keys
constexpr int kLanes = 4;
constexpr int64_t kColumns = 16;  // of a product, at once; divides kTile and head_dim
constexpr int kVectors = kColumns / kLanes;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Rows are written as numbers and read as vectors, and begin anywhere.
typedef float Lanes
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes* lanes_at(float* numbers) {
  return reinterpret_cast<Lanes*>(numbers);
}
inline const Lanes* lanes_at(const float* numbers) {
  return reinterpret_cast<const Lanes*>(numbers);
}

// A matrix whose element (i, j) is at i * row + j * column.
struct Strided {
  const float* at;
  int64_t row, column;
};
// One whose rows lie `row` numbers apart.
template <typename Number>
struct Rows {
  Number* at;
  int64_t row;
};

// kRows rows and kColumns columns of c = a b, or c += a b, which stay in registers.
template <int kRows, bool kAdd>
inline void multiply_piece(Strided a, Rows<const float> b, Rows<float> c, int64_t inner) {
  Lanes sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sum[r][v] = kAdd ? lanes_at(c.at + r * c.row)[v] : Lanes{};
  }
  for (int64_t i = 0; i < inner; ++i) {
    Lanes right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = lanes_at(b.at + i * b.row)[v];
    for (int r = 0; r < kRows; ++r) {
      const float left = a.at[r * a.row + i * a.column];
      for (int v = 0; v < kVectors; ++v) sum[r][v] += left * right[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) lanes_at(c.at + r * c.row)[v] = sum[r][v];
  }
}

// c [rows, columns] = a b, or c += a b; columns are a multiple of kColumns.
template <bool kAdd>
void multiply(Strided a, Rows<const float> b, Rows<float> c, int64_t rows, int64_t columns,
              int64_t inner) {
  constexpr int kRows = 5;  // six do not fit into ARM's 32 registers
  for (int64_t j = 0; j < columns; j += kColumns) {
    const auto pieces = [&]<int kCount>(int64_t first) {
      for (; first + kCount <= rows; first += kCount)
        multiply_piece<kCount, kAdd>({a.at + first * a.row, a.row, a.column}, {b.at + j, b.row},
                                     {c.at + first * c.row + j, c.row}, inner);
      return first;
    };
    int64_t done = pieces.template operator()<kRows>(0);
    done = pieces.template operator()<2>(done);
    pieces.template operator()<1>(done);
  }
}

// Copies of one head's rows without gaps: in a tensor they lie so far apart that they would push
// each other out of the cache.
class Head {
 public:
  Head(int64_t tokens, int64_t head_dim)
      : tokens_(tokens), head_dim_(head_dim), numbers_(static_cast<size_t>(tokens * head_dim)) {}
  void clear() { std::fill(numbers_.begin(), numbers_.end(), 0.0f); }
  void take(Rows<const float> from) {
    for (int64_t t = 0; t < tokens_; ++t) std::copy_n(from.at + t * from.row, head_dim_, row(t));
  }
  void give(Rows<float> to) {
    for (int64_t t = 0; t < tokens_; ++t) std::copy_n(row(t), head_dim_, to.at + t * to.row);
  }
  float* row(int64_t token) { return numbers_.data() + token * head_dim_; }
  Rows<float> rows(int64_t token) { return {row(token), head_dim_}; }
  Rows<const float> right(int64_t token) { return {row(token), head_dim_}; }
  Strided left(int64_t token) { return {row(token), head_dim_, 1}; }

 private:
  int64_t tokens_, head_dim_;
  std::vector<float> numbers_;
};

// The same with rows as columns, [head_dim, kTile] for each tile; what the last one has beyond the
// tokens is 0.
class TurnedHead {
 public:
  TurnedHead(int64_t tokens, int64_t head_dim)
      : tokens_(tokens),
        head_dim_(head_dim),
        numbers_(static_cast<size_t>((tokens + kTile - 1) / kTile * kTile * head_dim)) {}
  void take(Rows<const float> from) {
    for (int64_t t = 0; t < tokens_; ++t) {
      const float* row = from.at + t * from.row;
      float* to = numbers_.data() + t / kTile * kTile * head_dim_ + t % kTile;
      for (int64_t d = 0; d < head_dim_; ++d) to[d * kTile] = row[d];
    }
  }
  Rows<const float> right(int64_t first) const {
    return {numbers_.data() + first * head_dim_, kTile};
  }

 private:
  int64_t tokens_, head_dim_;
  std::vector<float> numbers_;
};

// A call's sizes, and where heads lie in its tensors.
struct Sizes {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  bool causal;

  Sizes(const TiledAttention& a, const Tensor& qkv)
      : batch(qkv.size(0)),
        tokens(qkv.size(1)),
        heads(a.heads),
        kv_heads(a.kv_heads),
        head_dim(a.head_dim),
        causal(a.causal) {
    VEIL_CHECK(heads % kv_heads == 0 && head_dim % kColumns == 0 &&
                   fits(qkv, at::kFloat, batch * tokens * joint_heads() * head_dim),
               "attention of {} heads of {} in a tensor of {} numbers", heads, head_dim,
               qkv.numel());
  }
  int64_t group() const { return heads / kv_heads; }
  int64_t joint_heads() const { return heads + 2 * kv_heads; }
  // Head `index` of a tensor [batch, tokens, count, head_dim].
  template <typename Number>
  Rows<Number> head(Number* tensor, int64_t count, int64_t sample, int64_t index) const {
    return {tensor + (sample * tokens * count + index) * head_dim, count * head_dim};
  }
  Rows<const float> joint(const float* qkv, int64_t sample, int64_t index) const {
    return head(qkv, joint_heads(), sample, index);
  }
  // Keys that some query before `end` sees, and how many of `count` from `key` on a query sees.
  int64_t keys_before(int64_t end) const { return causal ? end : tokens; }
  int64_t seen(int64_t query, int64_t key, int64_t count) const {
    return causal ? std::clamp<int64_t>(query - key + 1, 0, count) : count;
  }
};

// Queries [query, query + queries) and keys [key, key + keys) of one head, and how many numbers of
// a row are computed.
struct Tile {
  int64_t query, queries, key, keys;
  int64_t width() const { return (keys + kColumns - 1) / kColumns * kColumns; }
};

// 2^x for x in [-126, 0] within 2 units in the last place (Cephes' polynomial); what lies outside
// is taken for the nearer end. What is not a number stays so.
inline Lanes power_of_two(Lanes x) {
  constexpr float kShift = 12582912.0f;  // adding it leaves a whole number (exponential.h)
  const Lanes most = {}, least = most - 126.0f, below = x > most ? most : x,
              bounded = below < least ? least : below;
  const Lanes shifted = bounded + kShift, r = bounded - (shifted - kShift);
  Lanes p = 1.535336188319500e-4f * r + 1.339887440266574e-3f;
  p = p * r + 9.618437357674640e-3f;
  p = p * r + 5.550332471162809e-2f;
  p = p * r + 2.402264791363012e-1f;
  p = p * r + 6.931472028550421e-1f;
  p = p * r + 1.0f;
  return p * reinterpret_cast<Lanes>((reinterpret_cast<Words>(shifted) + 127u) << 23);
}

inline Lanes greater(Lanes a, Lanes b) {
  return a > b ? a : b;
}

float greatest(const Lanes* row, int64_t count) {
  Lanes most[kVectors] = {row[0], row[1], row[2], row[3]};
  for (int64_t v = kVectors; v < count; v += kVectors) {
    for (int l = 0; l < kVectors; ++l) most[l] = greater(row[v + l], most[l]);
  }
  const Lanes all = greater(greater(most[0], most[1]), greater(most[2], most[3]));
  return std::max(std::max(all[0], all[1]), std::max(all[2], all[3]));
}

// The softmax of a tile's rows as far as its keys are known. Scores are logarithms to base 2.
struct Softmax {
  float most[kTile];  // the greatest score
  float sum[kTile];   // of 2^(score - most)
};

// Scores become 2^(scale score - most), 0 where they are not seen; what was summed with a lesser
// maximum is scaled.
void add_scores(const Sizes& s, float scale, const Tile& tile, float* scores, Softmax& softmax,
                float* sums) {
  const int64_t width = tile.width(), count = width / kLanes;
  for (int64_t i = 0; i < tile.queries; ++i) {
    float* row = scores + i * kTile;
    Lanes* lanes = lanes_at(row);
    const int64_t seen = s.seen(tile.query + i, tile.key, tile.keys);
    for (int64_t j = seen; j < width; ++j) row[j] = -kInfinity;
    const float before = softmax.most[i], most = std::max(before, scale * greatest(lanes, count));
    Lanes added[kVectors] = {};
    for (int64_t v = 0; v < count; v += kVectors) {
      for (int l = 0; l < kVectors; ++l)
        added[l] += lanes[v + l] = power_of_two(scale * lanes[v + l] - most);
    }
    for (int64_t j = seen; j < width; ++j) row[j] = 0;
    const Lanes total = (added[0] + added[1]) + (added[2] + added[3]);
    const float less = power_of_two(Lanes{} + (before - most))[0];
    softmax.most[i] = most;
    softmax.sum[i] = softmax.sum[i] * less + ((total[0] + total[1]) + (total[2] + total[3]));
    if (less == 1) continue;
    for (int64_t d = 0; d < s.head_dim; ++d) sums[i * s.head_dim + d] *= less;
  }
}

// Scores become shares, and gradients of shares become those of scores. `dots`: of each row's
// result with its gradient.
void take_gradients(const Sizes& s, double scale, const Tile& tile, const float* log_sums,
                    const float* dots, float* scores, float* gradients) {
  const int64_t width = tile.width();
  const float scale_log2 = static_cast<float>(scale * std::numbers::log2e),
              plain_scale = static_cast<float>(scale);
  for (int64_t i = 0; i < tile.queries; ++i) {
    float *row = scores + i * kTile, *d_row = gradients + i * kTile;
    Lanes *share = lanes_at(row), *d = lanes_at(d_row);
    const int64_t seen = s.seen(tile.query + i, tile.key, tile.keys);
    const float log_sum = log_sums[tile.query + i], dot = dots[i];
    for (int64_t j = seen; j < width; ++j) row[j] = -kInfinity;
    for (int64_t v = 0; v < width / kLanes; ++v) {
      share[v] = power_of_two(scale_log2 * share[v] - log_sum);
      d[v] = plain_scale * share[v] * (d[v] - dot);
    }
    for (int64_t j = seen; j < width; ++j) row[j] = d_row[j] = 0;
  }
}

}  // namespace

bool tiled_attention_is_fastest(int64_t head_dim, DType compute) {
#if defined(__aarch64__)
  return compute == at::kFloat && head_dim % kColumns == 0;
#else
  return false;  // with MKL, LibTorch's is mostly faster
#endif
}

void tiled_attention(const TiledAttention& a, const Tensor& qkv, const Tensor& out,
                     const Tensor& log_sums) {
  const Sizes s(a, qkv);
  const int64_t numel = s.batch * s.tokens * s.heads * s.head_dim;
  VEIL_CHECK(fits(out, at::kFloat, numel) && fits(log_sums, at::kFloat, numel / s.head_dim),
             "attention's results have {} and {} numbers", out.numel(), log_sums.numel());
  const float scale = static_cast<float>(a.scale * std::numbers::log2e);
  const auto* from = qkv.const_data_ptr<float>();
  auto *to = out.data_ptr<float>(), *logs = log_sums.data_ptr<float>();
  at::parallel_for(0, s.batch * s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    Head queries(s.tokens, s.head_dim), values = queries;
    TurnedHead turned_keys(s.tokens, s.head_dim);
    std::vector<float> sums(static_cast<size_t>(kTile * s.head_dim));
    float scores[kTile * kTile];
    for (int64_t g = begin; g < end; ++g) {
      const int64_t sample = g / s.kv_heads, kv_head = g % s.kv_heads;
      turned_keys.take(s.joint(from, sample, s.heads + kv_head));
      values.take(s.joint(from, sample, s.heads + s.kv_heads + kv_head));
      for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
        queries.take(s.joint(from, sample, head));
        const Rows<float> results = s.head(to, s.heads, sample, head);
        float* log = logs + (sample * s.heads + head) * s.tokens;
        for (int64_t q = 0; q < s.tokens; q += kTile) {
          const int64_t count = std::min(kTile, s.tokens - q), last = s.keys_before(q + count);
          std::fill(sums.begin(), sums.end(), 0.0f);
          Softmax softmax = {};
          std::fill(softmax.most, softmax.most + kTile, -kInfinity);
          for (int64_t k = 0; k < last; k += kTile) {
            const Tile tile = {q, count, k, std::min(kTile, last - k)};
            multiply<false>(queries.left(q), turned_keys.right(k), {scores, kTile}, count,
                            tile.width(), s.head_dim);
            add_scores(s, scale, tile, scores, softmax, sums.data());
            multiply<true>({scores, kTile, 1}, values.right(k), {sums.data(), s.head_dim}, count,
                           s.head_dim, tile.keys);
          }
          for (int64_t i = 0; i < count; ++i) {
            const float *sum = sums.data() + i * s.head_dim, share = 1 / softmax.sum[i];
            float* result = results.at + (q + i) * results.row;
            for (int64_t d = 0; d < s.head_dim; ++d) result[d] = share * sum[d];
            log[q + i] = softmax.most[i] + std::log2(softmax.sum[i]);
          }
        }
      }
    }
  });
}

void tiled_attention_backward(const TiledAttention& a, const Tensor& d_out, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sums, const Tensor& dq,
                              const Tensor& dk, const Tensor& dv) {
  const Sizes s(a, qkv);
  const int64_t numel = s.batch * s.tokens * s.heads * s.head_dim, kv_numel = numel / s.group();
  VEIL_CHECK(fits(d_out, at::kFloat, numel) && fits(out, at::kFloat, numel) &&
                 fits(dq, at::kFloat, numel) && fits(dk, at::kFloat, kv_numel) &&
                 fits(dv, at::kFloat, kv_numel) && fits(log_sums, at::kFloat, numel / s.head_dim),
             "attention's gradients have {} numbers", d_out.numel());
  const auto *from = qkv.const_data_ptr<float>(), *results = out.const_data_ptr<float>(),
             *d_results = d_out.const_data_ptr<float>(), *logs = log_sums.const_data_ptr<float>();
  auto *to_q = dq.data_ptr<float>(), *to_k = dk.data_ptr<float>(), *to_v = dv.data_ptr<float>();
  at::parallel_for(0, s.batch * s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    Head queries(s.tokens, s.head_dim), keys = queries, grads = queries, d_queries = queries,
                                        d_keys = queries, d_values = queries;
    TurnedHead turned_keys(s.tokens, s.head_dim), turned_values = turned_keys;
    float shares[kTile * kTile], d_scores[kTile * kTile], dots[kTile];
    for (int64_t g = begin; g < end; ++g) {
      const int64_t sample = g / s.kv_heads, kv_head = g % s.kv_heads;
      keys.take(s.joint(from, sample, s.heads + kv_head));
      turned_keys.take(keys.right(0));
      turned_values.take(s.joint(from, sample, s.heads + s.kv_heads + kv_head));
      d_keys.clear();
      d_values.clear();
      for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
        queries.take(s.joint(from, sample, head));
        grads.take(s.head(d_results, s.heads, sample, head));
        d_queries.clear();
        const Rows<const float> made = s.head(results, s.heads, sample, head);
        for (int64_t q = 0; q < s.tokens; q += kTile) {
          const int64_t count = std::min(kTile, s.tokens - q), last = s.keys_before(q + count);
          for (int64_t i = 0; i < count; ++i) {
            const float *d = grads.row(q + i), *o = made.at + (q + i) * made.row;
            dots[i] = lane_sum<float>(s.head_dim, [&](int64_t j) { return d[j] * o[j]; });
          }
          for (int64_t k = 0; k < last; k += kTile) {
            const Tile tile = {q, count, k, std::min(kTile, last - k)};
            multiply<false>(queries.left(q), turned_keys.right(k), {shares, kTile}, count,
                            tile.width(), s.head_dim);
            multiply<false>(grads.left(q), turned_values.right(k), {d_scores, kTile}, count,
                            tile.width(), s.head_dim);
            take_gradients(s, a.scale, tile, logs + (sample * s.heads + head) * s.tokens, dots,
                           shares, d_scores);
            multiply<true>({d_scores, kTile, 1}, keys.right(k), d_queries.rows(q), count,
                           s.head_dim, tile.keys);
            multiply<true>({d_scores, 1, kTile}, queries.right(q), d_keys.rows(k), tile.keys,
                           s.head_dim, count);
            multiply<true>({shares, 1, kTile}, grads.right(q), d_values.rows(k), tile.keys,
                           s.head_dim, count);
          }
        }
        d_queries.give(s.head(to_q, s.heads, sample, head));
      }
      d_keys.give(s.head(to_k, s.kv_heads, sample, kv_head));
      d_values.give(s.head(to_v, s.kv_heads, sample, kv_head));
    }
  });
}

}  // namespace veil
