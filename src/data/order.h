// Which samples a rank takes in a step. An order is a function of the position alone, so a run that
// is resumed takes what the uninterrupted one would have taken.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace veil::data {

struct Position {
  int64_t epoch = 0, step = 0;  // the step counts from the epoch's begin
  bool operator==(const Position&) const = default;
};
nlohmann::json position_json(const Position& position);
Position position_from_json(const nlohmann::json& text);  // UserError if it is none

inline constexpr int64_t kNoSample = -1;

class Order {
 public:
  virtual ~Order() = default;
  // This rank's samples; kNoSample stands for one that is none. One thread at a time.
  virtual std::vector<int64_t> samples(const Position& position) = 0;
  // The position behind it; nothing if that is the end. Any number of threads, besides one that
  // asks for samples.
  virtual std::optional<Position> after(const Position& position) const = 0;
};

// A shuffled order of all samples for each (seed, epoch). Step s of an epoch takes places [s G, (s
// + 1) G) of it, G the global batch; rank r of W takes the r-th of W equal parts of those. So the
// ranks together take the same samples whatever W is. What does not fill a global batch at an
// epoch's end is left out there. It never ends.
class ShuffledOrder : public Order {
 public:
  // UserError unless there is a whole global batch and the ranks share it evenly.
  ShuffledOrder(int64_t sample_count, int64_t global_batch, uint64_t seed, int64_t rank = 0,
                int64_t world = 1);
  int64_t steps_per_epoch() const { return sample_count_ / global_batch_; }
  std::vector<int64_t> samples(const Position& position) override;
  std::optional<Position> after(const Position& position) const override;

 private:
  int64_t sample_count_, global_batch_, rank_, world_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // that `shuffled_` belongs to
  std::vector<uint32_t> shuffled_;
};

// Every sample once, as they stand, for evaluation: the last batch is filled up with kNoSample.
class SequentialOrder : public Order {
 public:
  SequentialOrder(int64_t sample_count, int64_t global_batch, int64_t rank = 0, int64_t world = 1);
  int64_t steps() const { return (sample_count_ + global_batch_ - 1) / global_batch_; }
  std::vector<int64_t> samples(const Position& position) override;
  std::optional<Position> after(const Position& position) const override;

 private:
  int64_t sample_count_, global_batch_, rank_, world_;
};

// 0 to count - 1 in an order drawn by Philox from (seed, epoch): Fisher and Yates's shuffle.
std::vector<uint32_t> shuffled(int64_t count, uint64_t seed, int64_t epoch);

}  // namespace veil::data
