#include "data/order.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "kernels/philox.h"

namespace veil::data {
namespace {

// "order": apart from other uses of one seed
constexpr uint64_t kOrderDomain = 0x6F72646572ull << 24;

void check_share(int64_t global_batch, int64_t rank, int64_t world) {
  VEIL_CHECK(world >= 1 && rank >= 0 && rank < world, "rank {} of {}", rank, world);
  if (global_batch < 1) field_error("batch_size", "must be at least 1, got {}", global_batch);
  if (global_batch % world != 0) {
    user_error("a batch of {} samples over {} ranks: allowed is a multiple of the ranks",
               global_batch, world);
  }
}

}  // namespace

nlohmann::json position_json(const Position& position) {
  return {{"epoch", position.epoch}, {"step", position.step}};
}

Position position_from_json(const nlohmann::json& text) {
  constexpr int64_t kMost = int64_t{1} << 53;  // what JSON's numbers hold exactly everywhere
  const auto whole = [&](const char* name) {
    const bool there = text.is_object() && text.contains(name);
    const nlohmann::json value = there ? text[name] : nlohmann::json();
    // What is no whole number, as 1e300, has no cast; from 2^63 on it compares as negative.
    return value.is_number_integer() && value >= 0 && value <= kMost ? value.get<int64_t>() : -1;
  };
  const Position position{whole("epoch"), whole("step")};
  if (position.epoch < 0 || position.step < 0)
    user_error("{} is no position in the data: it has epoch and step, whole numbers from 0 to {}",
               printable(text.dump().substr(0, 80)), kMost);
  return position;
}

std::vector<uint32_t> shuffled(int64_t count, uint64_t seed, int64_t epoch) {
  VEIL_CHECK(count >= 0 && count <= std::numeric_limits<uint32_t>::max(), "{} samples", count);
  std::vector<uint32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  for (uint64_t last = static_cast<uint64_t>(count); last > 1; --last) {
    const Philox4 random = philox4x32(seed ^ kOrderDomain, last, static_cast<uint64_t>(epoch));
    const uint64_t bits = uint64_t{random.word[0]} << 32 | random.word[1];
    // A number below `last`; from 64 bits its bias is below 2^-32.
    const auto chosen = static_cast<size_t>((static_cast<unsigned __int128>(bits) * last) >> 64);
    std::swap(order[static_cast<size_t>(last - 1)], order[chosen]);
  }
  return order;
}

ShuffledOrder::ShuffledOrder(int64_t sample_count, int64_t global_batch, uint64_t seed,
                             int64_t rank, int64_t world)
    : sample_count_(sample_count),
      global_batch_(global_batch),
      rank_(rank),
      world_(world),
      seed_(seed) {
  check_share(global_batch, rank, world);
  if (sample_count < global_batch) {
    user_error("the data has {} samples, fewer than one batch of {}: give more, or a smaller batch",
               sample_count, global_batch);
  }
  if (sample_count > std::numeric_limits<uint32_t>::max())
    user_error("the data has {} samples: allowed are 2^32 - 1", sample_count);
}

std::vector<int64_t> ShuffledOrder::samples(const Position& position) {
  if (position.step < 0 || position.step >= steps_per_epoch()) {
    user_error(
        "step {} of an epoch that has {}: resume with the data and the batch size that the run "
        "began with",
        position.step, steps_per_epoch());
  }
  if (epoch_ != position.epoch) {
    shuffled_ = shuffled(sample_count_, seed_, position.epoch);
    epoch_ = position.epoch;
  }
  const int64_t share = global_batch_ / world_;
  const auto begin = shuffled_.begin() + position.step * global_batch_ + rank_ * share;
  return {begin, begin + share};
}

std::optional<Position> ShuffledOrder::after(const Position& position) const {
  if (position.step + 1 < steps_per_epoch()) return Position{position.epoch, position.step + 1};
  return Position{position.epoch + 1, 0};
}

SequentialOrder::SequentialOrder(int64_t sample_count, int64_t global_batch, int64_t rank,
                                 int64_t world)
    : sample_count_(sample_count), global_batch_(global_batch), rank_(rank), world_(world) {
  check_share(global_batch, rank, world);
}

std::vector<int64_t> SequentialOrder::samples(const Position& position) {
  const int64_t share = global_batch_ / world_;
  std::vector<int64_t> result(static_cast<size_t>(share));
  std::iota(result.begin(), result.end(), position.step * global_batch_ + rank_ * share);
  for (int64_t& sample : result) sample = sample < sample_count_ ? sample : kNoSample;
  return result;
}

std::optional<Position> SequentialOrder::after(const Position& position) const {
  if (position.step + 1 < steps()) return Position{0, position.step + 1};
  return {};
}

}  // namespace veil::data
