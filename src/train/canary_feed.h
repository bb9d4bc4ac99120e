// A feed with canaries: samples of known content behind its own ones, or in the place of one.
#pragma once

#include "train/feed.h"

namespace veil {

// One sample's row of a feed, as the model takes it: tensors [1, ...]. kNoSample: what pads.
Batch feed_row(const Feed& feed, int64_t sample, uint64_t seed);

struct Canaries {
  std::vector<Batch> rows;    // as of feed_row, with any content
  std::vector<bool> present;  // one that is not keeps its number; a step that draws it has padding
  // The number of the first one: that of a sample whose place it takes, or the feed's count.
  int64_t first = 0;
};
// Outlives `base`'s streams as `base` does.
std::shared_ptr<const Feed> with_canaries(std::shared_ptr<const Feed> base, Canaries canaries);

// The first `count` samples of a feed.
std::shared_ptr<const Feed> first_samples(std::shared_ptr<const Feed> base, int64_t count);

}  // namespace veil
