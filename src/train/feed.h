// Where a trainer's samples come from: text or images, made ahead of the step that takes them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/batches.h"
#include "nn/tape.h"

namespace veil {

// One rank's samples of a logical batch.
struct FedBatch {
  data::Position position;
  Batch batch;                   // as the model takes them; `counted` is not set
  std::vector<int64_t> samples;  // [rows]; data::kNoSample for padding
  std::vector<int64_t> weights;  // [rows]: a row's targets, by which an evaluation weighs its loss; empty: all alike
};

class FeedStream {
 public:
  virtual ~FeedStream() = default;
  // The samples of this step of the run; nothing at the order's end. What failed while they were made is thrown here.
  virtual std::optional<FedBatch> next(int64_t step) = 0;
  // Where the next batch stands; nothing at the order's end.
  virtual std::optional<data::Position> position() const = 0;
  virtual data::LoaderStatistics statistics() const = 0;
};

// Outlives its streams.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual int64_t count() const = 0;   // samples
  virtual int64_t tokens() const = 0;  // a sample
  // What a sample draws anew in each step depends on (seed, step, sample) alone: not on its rank, its place in the batch or the other samples.
  virtual std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                           uint64_t seed) const = 0;
};

// Bytes [rows], 0 for padding: Batch::counted.
Tensor counted_rows(const std::vector<int64_t>& samples);

}  // namespace veil
