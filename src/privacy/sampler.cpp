#include "privacy/sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "kernels/word_lanes.h"

namespace veil::privacy {
namespace {

constexpr int kLanes = 8;        // blocks made at once: enough for the widest vectors
constexpr int64_t kOfBlock = 8;  // samples that a block of 16 words decides, 64 bits each

// kLanes blocks with counters first, first + 1, ...; word w of block l is x[w].lane[l].
void make_blocks(const ChaChaKey& key, uint64_t first, uint64_t step, WordLanes<kLanes> (&x)[16]) {
  ChaChaBlock input[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    const uint64_t block = first + static_cast<uint64_t>(l);
    input[l] = chacha_input(key, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                            static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32));
  }
  chacha20(input, x);
}

}  // namespace

std::vector<int64_t> poisson_draw(const ChaChaKey& key, int64_t step, int64_t data_size, double q) {
  VEIL_CHECK(step >= 0 && data_size >= 0 && q >= 0 && q <= 1,
             "a draw of {} samples at step {} with q {}", data_size, step, q);
  std::vector<int64_t> drawn;
  if (q == 1) {
    for (int64_t sample = 0; sample < data_size; ++sample) drawn.push_back(sample);
    return drawn;
  }
  const auto threshold = static_cast<uint64_t>(std::ldexp(q, 64));  // q < 1, so it is below 2^64
  const double mean = q * static_cast<double>(data_size);
  drawn.reserve(static_cast<size_t>(mean + 6 * std::sqrt(mean) + 16));
  WordLanes<kLanes> x[16];
  for (int64_t begin = 0; begin < data_size; begin += kLanes * kOfBlock) {
    make_blocks(key, static_cast<uint64_t>(begin / kOfBlock), static_cast<uint64_t>(step), x);
    const int64_t end = std::min(data_size, begin + kLanes * kOfBlock);
    for (int64_t sample = begin; sample < end; ++sample) {
      const auto lane = static_cast<size_t>((sample - begin) / kOfBlock),
                 place = static_cast<size_t>(sample % kOfBlock);
      const uint64_t bits = uint64_t{x[2 * place + 1].lane[lane]} << 32 | x[2 * place].lane[lane];
      if (bits < threshold) drawn.push_back(sample);
    }
  }
  return drawn;
}

namespace {

// Steps are below 2^62, so the highest bits of a block's last word tell the uses of one key apart.
// 0 is poisson_draw.
enum class KeyUse : uint32_t { cut = 1, user_sample = 2 };

uint64_t bits_of(const ChaChaKey& key, KeyUse use, int64_t step, int64_t unit) {
  VEIL_CHECK(step >= 0 && step < int64_t{1} << 62, "step {}", step);
  const ChaChaBlock block =
      chacha20(key, static_cast<uint32_t>(unit), static_cast<uint32_t>(unit >> 32),
               static_cast<uint32_t>(step),
               static_cast<uint32_t>(step >> 32) | static_cast<uint32_t>(use) << 30);
  return uint64_t{block.word[1]} << 32 | block.word[0];
}

}  // namespace

std::vector<int64_t> cut_draw(const ChaChaKey& key, int64_t step, std::vector<int64_t> draw,
                              int64_t most) {
  VEIL_CHECK(most >= 1, "a draw cut to {}", most);
  if (static_cast<int64_t>(draw.size()) <= most) return draw;
  std::vector<std::pair<uint64_t, int64_t>> ranked;
  for (const int64_t unit : draw) ranked.emplace_back(bits_of(key, KeyUse::cut, step, unit), unit);
  std::nth_element(ranked.begin(), ranked.begin() + most, ranked.end());
  draw.clear();
  for (auto kept = ranked.begin(); kept != ranked.begin() + most; ++kept)
    draw.push_back(kept->second);
  std::sort(draw.begin(), draw.end());
  return draw;
}

int64_t chosen_place(const ChaChaKey& key, int64_t step, int64_t user, int64_t count) {
  VEIL_CHECK(count >= 1, "a user with {} samples", count);
  // The bias of a number below `count` is at most count / 2^64.
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(bits_of(key, KeyUse::user_sample, step, user)) *
       static_cast<uint64_t>(count)) >>
      64);
}

int64_t micro_batches_for(int64_t units, int64_t micro_batch, int64_t world) {
  const int64_t largest_share = (units + world - 1) / world;
  return (largest_share + micro_batch - 1) / micro_batch;
}

Deal deal_out(const std::vector<int64_t>& draw, int64_t micro_batch, int64_t rank, int64_t world,
              int64_t at_least) {
  VEIL_CHECK(micro_batch >= 1 && world >= 1 && rank >= 0 && rank < world,
             "micro-batches of {} for rank {} of {}", micro_batch, rank, world);
  const auto count = static_cast<int64_t>(draw.size());
  Deal deal;
  deal.micro_batches = micro_batches_for(std::max(count, at_least), micro_batch, world);
  deal.samples.reserve(static_cast<size_t>(deal.micro_batches * micro_batch));
  for (int64_t place = rank; place < count; place += world)
    deal.samples.push_back(draw[static_cast<size_t>(place)]);
  deal.samples.resize(static_cast<size_t>(deal.micro_batches * micro_batch), data::kNoSample);
  return deal;
}

PoissonOrder::PoissonOrder(const ChaChaKey& key, int64_t data_size, double q, int64_t micro_batch,
                           int64_t rank, int64_t world, DrawOptions options)
    : key_(key),
      data_size_(data_size),
      q_(q),
      micro_batch_(micro_batch),
      rank_(rank),
      world_(world),
      options_(std::move(options)) {
  VEIL_CHECK(!options_.users || options_.users->count() == data_size, "{} users are drawn of {}",
             data_size, options_.users->count());
  VEIL_CHECK(world >= 1 && rank >= 0 && rank < world, "rank {} of {}", rank, world);
  if (data_size < 1) user_error("the data has {} samples: allowed is 1 or more", data_size);
  if (!(q > 0 && q <= 1)) field_error("q", "must be a sampling rate above 0, up to 1, got {}", q);
  if (micro_batch < 1) user_error("a micro-batch of {} samples: allowed is 1 or more", micro_batch);
}

std::vector<int64_t> PoissonOrder::samples(const data::Position& position) {
  if (position.epoch != 0 || position.step < 0) {
    user_error(
        "epoch {} step {} under Poisson sampling, which has no epochs: resume with the sampler "
        "that the run began with",
        position.epoch, position.step);
  }
  std::vector<int64_t> draw = poisson_draw(key_, position.step, data_size_, q_);
  if (options_.most > 0) draw = cut_draw(key_, position.step, std::move(draw), options_.most);
  std::vector<int64_t> mine = deal_out(draw, micro_batch_, rank_, world_, options_.most).samples;
  if (!options_.users) return mine;
  for (int64_t& unit : mine) {
    if (unit == data::kNoSample) continue;
    unit = options_.users->sample(
        unit, chosen_place(key_, position.step, unit, options_.users->samples_of(unit)));
  }
  return mine;
}

std::optional<data::Position> PoissonOrder::after(const data::Position& position) const {
  return data::Position{0, position.step + 1};
}

}  // namespace veil::privacy
