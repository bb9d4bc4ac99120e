#include "kernels/token_draw.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/launch_decode.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {
namespace {

uint64_t mass_of(int64_t halvings) {
  static const std::vector<uint32_t> table = [] {
    std::vector<uint32_t> powers;
    for (int i = 0; i < kMassTable; ++i) powers.push_back(mass_power(i));
    return powers;
  }();
  return token_mass(halvings, table.data());
}

// One row: how far each token lies below the most likely one.
struct Row {
  std::vector<int64_t> halvings;
  size_t largest = 0;

  // The rank of the token with which the sum of weights, over tokens by falling likelihood, reaches
  // `wanted`; `before` gets the sum over all tokens of lower rank.
  template <typename Weigh>
  int64_t rank_that_reaches(uint64_t wanted, const Weigh& weigh, uint64_t& before) const {
    // Three rounds of 12 bits of the rank: which bin the wanted amount ends in.
    int64_t prefix = 0;
    before = 0;
    for (int shift = 24; shift >= 0; shift -= 12) {
      std::array<uint64_t, 4096> bins{};
      for (const int64_t h : halvings) {
        const int64_t rank = token_rank(h);
        if (h < kFarBelow && rank >> (shift + 12) == prefix)
          bins[(rank >> shift) & 4095] += weigh(h);
      }
      size_t bin = 0;
      while (bin < 4095 && before + bins[bin] < wanted) before += bins[bin++];
      prefix = prefix << 12 | static_cast<int64_t>(bin);
    }
    return prefix;
  }
};

template <typename T>
Row row_of(const T* logits, const uint8_t* seen, int64_t vocabulary, const DrawRule& rule) {
  auto logit = [&](int64_t v) {
    const float x =
        penalised(static_cast<float>(logits[v]), seen && seen[v], rule.repetition_penalty);
    return x == x ? x : -std::numeric_limits<float>::infinity();
  };
  Row row;
  float largest = logit(0);
  for (int64_t v = 1; v < vocabulary; ++v) {
    const float x = logit(v);
    if (x <= largest) continue;
    largest = x;
    row.largest = static_cast<size_t>(v);
  }
  if (rule.temperature <= 0) return row;
  const double scale = halvings_per_unit(rule);
  row.halvings.resize(static_cast<size_t>(vocabulary));
  for (int64_t v = 0; v < vocabulary; ++v)
    row.halvings[static_cast<size_t>(v)] = halvings_below(largest, logit(v), scale);
  return row;
}

// Masses of what stays; the others' are 0.
std::vector<uint64_t> kept_masses(const Row& row, const DrawRule& rule) {
  const auto vocabulary = static_cast<int64_t>(row.halvings.size());
  std::vector<uint64_t> masses(row.halvings.size());
  int64_t last_rank = kLastRank;
  if (rule.top_k > 0 && rule.top_k < vocabulary) {
    uint64_t before = 0;
    last_rank = row.rank_that_reaches(
        static_cast<uint64_t>(rule.top_k), [](int64_t) { return uint64_t{1}; }, before);
  }
  uint64_t total = 0;
  for (size_t v = 0; v < masses.size(); ++v) {
    if (token_rank(row.halvings[v]) <= last_rank) masses[v] = mass_of(row.halvings[v]);
    total += masses[v];
  }
  if (rule.top_p >= 1) return masses;
  const uint64_t wanted = wanted_mass(total, rule.top_p);
  uint64_t before = 0;
  const int64_t rank = row.rank_that_reaches(
      wanted, [&](int64_t h) { return token_rank(h) <= last_rank ? mass_of(h) : uint64_t{0}; },
      before);
  // Of the tokens at the border as many stay as are needed, the last by index first.
  for (size_t v = masses.size(); v-- > 0;) {
    const int64_t own = token_rank(row.halvings[v]);
    const bool stays = own < rank || (own == rank && before < wanted);
    if (own == rank && stays) before += masses[v];
    if (!stays) masses[v] = 0;
  }
  // at least one
  if (std::all_of(masses.begin(), masses.end(), [](uint64_t m) { return m == 0; }))
    masses[row.largest] = 1;
  return masses;
}

template <typename T>
void draw_cpu(const launch::TokenDraw& d) {
  at::parallel_for(0, d.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Row row = row_of(static_cast<const T*>(d.logits) + i * d.vocabulary,
                             d.seen ? d.seen + i * d.vocabulary : nullptr, d.vocabulary, d.rule);
      if (d.rule.temperature <= 0) {
        d.tokens[i] = static_cast<int64_t>(row.largest);
        continue;
      }
      const std::vector<uint64_t> masses = kept_masses(row, d.rule);
      uint64_t total = 0;
      for (const uint64_t mass : masses) total += mass;
      const uint64_t drawn = drawn_mass(total, d.seed, d.samples[i], d.places[i]);
      uint64_t sum = 0;
      size_t v = 0;
      while (v + 1 < masses.size() && sum + masses[v] <= drawn) sum += masses[v++];
      d.tokens[i] = static_cast<int64_t>(v);
    }
  });
}

}  // namespace

void draw_tokens(const Tensor& logits, const Tensor& seen, const DrawRule& rule, uint64_t seed,
                 const Tensor& samples, const Tensor& places, const Tensor& tokens) {
  VEIL_CHECK(logits.dim() == 2 && logits.is_contiguous() && logits.size(1) > 0,
             "draw_tokens: logits");
  const int64_t batch = logits.size(0);
  VEIL_CHECK(absent_or_fits(seen, at::kByte, logits.numel()) && fits(samples, at::kLong, batch) &&
                 fits(places, at::kLong, batch) && fits(tokens, at::kLong, batch),
             "draw_tokens: {} rows", batch);
  if (batch == 0) return;
  const launch::TokenDraw arguments{
      logits.data_ptr(),
      element_of(logits),
      seen.defined() ? seen.data_ptr<uint8_t>() : nullptr,
      batch,
      logits.size(1),
      rule,
      seed,
      samples.data_ptr<int64_t>(),
      places.data_ptr<int64_t>(),
      tokens.data_ptr<int64_t>(),
      logits.is_cuda() ? Stream::current(logits.device()).handle() : nullptr};
  if (logits.is_cuda()) return launch::draw_tokens(arguments);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, logits.scalar_type(), "draw_tokens",
                                  [&] { draw_cpu<scalar_t>(arguments); });
}

std::vector<double> token_distribution(const std::vector<float>& logits, const DrawRule& rule) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  const Row row = row_of(logits.data(), nullptr, vocabulary, rule);
  std::vector<double> probabilities(logits.size(), 0.0);
  if (rule.temperature <= 0) {
    probabilities[row.largest] = 1;
    return probabilities;
  }
  const std::vector<uint64_t> masses = kept_masses(row, rule);
  uint64_t total = 0;
  for (const uint64_t mass : masses) total += mass;
  for (size_t v = 0; v < masses.size(); ++v)
    probabilities[v] = static_cast<double>(masses[v]) / static_cast<double>(total);
  return probabilities;
}

}  // namespace veil
