// A feed whose samples are their own numbers: one token each.
#pragma once

#include <ATen/ops/empty.h>

#include "train/feed.h"

namespace veil {

class NumberFeed final : public Feed {
 public:
  explicit NumberFeed(int64_t count) : count_(count) {}
  int64_t count() const override { return count_; }
  int64_t tokens() const override { return 1; }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t) const override {
    return std::make_unique<Stream>(std::move(order), start);
  }

 private:
  class Stream final : public FeedStream {
   public:
    Stream(std::unique_ptr<data::Order> order, data::Position start)
        : order_(std::move(order)), next_(start) {}
    std::optional<FedBatch> next(int64_t) override {
      if (!next_) return {};
      FedBatch fed;
      fed.position = *next_;
      fed.samples = order_->samples(*next_);
      const auto rows = static_cast<int64_t>(fed.samples.size());
      fed.batch.inputs = at::empty({rows, 1}, at::kLong);
      fed.batch.targets = at::empty({rows, 1}, at::kLong);
      for (int64_t row = 0; row < rows; ++row) {
        fed.batch.inputs.data_ptr<int64_t>()[row] = fed.samples[static_cast<size_t>(row)];
        fed.batch.targets.data_ptr<int64_t>()[row] = 0;
      }
      next_ = order_->after(*next_);
      return fed;
    }
    std::optional<data::Position> position() const override { return next_; }
    data::LoaderStatistics statistics() const override { return {}; }

   private:
    std::unique_ptr<data::Order> order_;
    std::optional<data::Position> next_;
  };
  int64_t count_;
};

}  // namespace veil
