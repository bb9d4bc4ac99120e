// Batches of data as tensors.
#include "train/feed.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

// Poisson sampling draws such ones. The sanitizers find a copy from or to no memory.
TEST(Feed, ABatchWithoutSamplesHasTensorsWithoutRows) {
  data::Batch batch;
  batch.length = 12;
  const Batch tensors = batch_tensors(batch);
  EXPECT_EQ(tensors.inputs.sizes(), (std::vector<int64_t>{0, 12}));
  EXPECT_EQ(tensors.targets.sizes(), (std::vector<int64_t>{0, 12}));
}

}  // namespace
}  // namespace veil
