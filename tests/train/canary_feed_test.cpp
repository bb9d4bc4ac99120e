// Canaries among a feed's samples.
#include "train/canary_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/test_number_feed.h"

namespace veil {
namespace {

using ::testing::ElementsAre;

Batch canary_row(int64_t token) {
  Batch row{at::empty({1, 1}, at::kLong), at::empty({1, 1}, at::kLong)};
  row.inputs.fill_(token);
  row.targets.fill_(token + 1);
  return row;
}

FedBatch all_of(const std::shared_ptr<const Feed>& feed, int64_t count) {
  return *feed->open(std::make_unique<data::SequentialOrder>(count, count), {}, 0)->next(1);
}

std::vector<int64_t> tokens_of(const FedBatch& fed) {
  const Tensor inputs = fed.batch.inputs.contiguous();
  return {inputs.data_ptr<int64_t>(), inputs.data_ptr<int64_t>() + inputs.numel()};
}

TEST(CanaryFeed, CanariesStandBehindTheSamplesAndThoseLeftOutArePadding) {
  const auto feed = with_canaries(std::make_shared<NumberFeed>(3),
                                  {{canary_row(70), canary_row(80)}, {true, false}, 3});
  EXPECT_EQ(feed->count(), 5);  // whatever the coins say
  EXPECT_EQ(feed->present(), 4);
  const FedBatch fed = all_of(feed, 5);
  EXPECT_THAT(fed.samples, ElementsAre(0, 1, 2, 3, data::kNoSample));
  EXPECT_THAT(tokens_of(fed), ElementsAre(0, 1, 2, 70, data::kNoSample));
  EXPECT_EQ(fed.batch.targets[3].item<int64_t>(), 71);
  EXPECT_EQ(counted_rows(fed.samples)[4].item<int64_t>(), 0);
}

TEST(CanaryFeed, ACanaryCanTakeThePlaceOfASample) {
  const auto feed = with_canaries(std::make_shared<NumberFeed>(3), {{canary_row(70)}, {true}, 1});
  EXPECT_EQ(feed->count(), 3);
  EXPECT_THAT(tokens_of(all_of(feed, 3)), ElementsAre(0, 70, 2));
  const auto without =
      with_canaries(std::make_shared<NumberFeed>(3), {{canary_row(70)}, {false}, 1});
  EXPECT_EQ(feed->present(), 3);
  EXPECT_EQ(without->present(), 2);
  EXPECT_THAT(all_of(without, 3).samples, ElementsAre(0, data::kNoSample, 2));
}

TEST(CanaryFeed, OneRowAndTheFirstSamplesAreTheFeedsOwn) {
  const auto feed = std::make_shared<NumberFeed>(9);
  EXPECT_EQ(feed_row(*feed, 4, 0).inputs.item<int64_t>(), 4);
  EXPECT_EQ(first_samples(feed, 2)->count(), 2);
}

}  // namespace
}  // namespace veil
