// Images as a trainer's feed: each comes with noise of a timestep of its own, drawn anew in every step.
#pragma once

#include "data/image_source.h"
#include "train/feed.h"
#include "train/noised_batch.h"

namespace veil {

struct ImageFeedOptions {
  double label_drop = 0.1;  // part of the samples whose class is hidden
  int threads = 2;          // batches that are decoded ahead at a time
  DType compute = at::kFloat;
  Device device = cpu_device();  // where the noise is made
};

// Every image's label must be below config.classes.
std::shared_ptr<const Feed> make_image_feed(std::shared_ptr<const data::ImageSource> images, const DitConfig& config,
                                            const ImageFeedOptions& options);

}  // namespace veil
