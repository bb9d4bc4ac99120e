// Where a trainer's samples come from: text or images, made ahead of the step that takes them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/batches.h"
#include "data/image_source.h"
#include "nn/tape.h"
#include "train/noised_batch.h"

namespace veil {

// One rank's samples of a logical batch.
struct FedBatch {
  data::Position position;
  Batch batch;                   // as the model takes them; `counted` is not set
  std::vector<int64_t> samples;  // [rows]; data::kNoSample for padding
  // [rows]: a row's targets, by which an evaluation weighs its loss; empty: all alike
  std::vector<int64_t> weights;
};

class FeedStream {
 public:
  virtual ~FeedStream() = default;
  // The samples of this step of the run; nothing at the order's end. What failed while they were
  // made is thrown here.
  virtual std::optional<FedBatch> next(int64_t step) = 0;
  // Where the next batch is; nothing at the order's end.
  virtual std::optional<data::Position> position() const = 0;
  virtual data::LoaderStatistics statistics() const = 0;
};

// Outlives its streams.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual int64_t count() const = 0;  // samples
  // Those that a batch can show: a canary that is absent is drawn, and its place stays empty.
  virtual int64_t present() const { return count(); }
  virtual int64_t tokens() const = 0;  // per sample
  // What a sample draws anew in each step depends on (seed, step, sample) alone: not on its rank,
  // its place in the batch or the other samples.
  virtual std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                           uint64_t seed) const = 0;
};

// Bytes [rows], 0 for padding: Batch::counted.
Tensor counted_rows(const std::vector<int64_t>& samples);

// Tokens as a feed.
std::shared_ptr<const Feed> make_text_feed(std::shared_ptr<const data::Samples> samples);

// The samples as a model takes them: inputs [rows, tokens], targets [rows, tokens] or [rows]
// labels; on CPU.
Batch batch_tensors(const data::Batch& batch);

// Images as a feed: each comes with noise of a timestep of its own, drawn anew in every step.
struct ImageFeedOptions {
  double label_drop = 0.1;  // part of the samples whose class is hidden
  int threads = 2;          // batches that are decoded ahead at a time
  DType compute = at::kFloat;
  Device device = cpu_device();  // where the noise is made
};

// Every image's label must be below config.classes.
std::shared_ptr<const Feed> make_image_feed(std::shared_ptr<const data::ImageSource> images,
                                            const DitConfig& config,
                                            const ImageFeedOptions& options);

}  // namespace veil
