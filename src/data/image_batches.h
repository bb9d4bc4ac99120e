// The loader of images: batches decoded ahead of the step that takes them, each on a thread of its
// own.
#pragma once

#include <deque>
#include <future>
#include <memory>

#include "data/batches.h"
#include "data/image_source.h"

namespace veil::data {

struct ImageBatch {
  Position position;
  std::vector<int64_t> samples, labels;  // [rows]; kNoSample for padding, whose label is 0
  std::vector<float> pixels;             // [rows, channels, size, size] in [-1, 1]; 0 for padding
  double busy_ms = 0;                    // it took to make
};

// A batch of these samples, made now. channels: 3, or 1 for their mean.
ImageBatch make_image_batch(const ImageSource& source, const std::vector<int64_t>& chosen,
                            int64_t size, int64_t channels);

class ImageBatches {
 public:
  // `ahead` batches are in the making at any time.
  ImageBatches(std::shared_ptr<const ImageSource> source, std::unique_ptr<Order> order,
               int64_t size, int64_t channels, Position start, int ahead);
  // The next batch; nothing at the order's end. What failed while it was made is thrown here.
  std::optional<ImageBatch> next();
  // Where the next batch is.
  std::optional<Position> position() const { return position_; }
  LoaderStatistics statistics() const { return statistics_; }

 private:
  void begin_one();
  std::shared_ptr<const ImageSource> source_;
  std::unique_ptr<Order> order_;
  int64_t size_, channels_;
  std::optional<Position> position_, begun_;  // of the next batch to take, and to begin
  std::deque<std::future<ImageBatch>> ready_;
  LoaderStatistics statistics_;
};

}  // namespace veil::data
