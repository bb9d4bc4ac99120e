#include "train/text_batches.h"

#include <algorithm>
#include <cstring>

namespace veil {
namespace {

Tensor whole_numbers(const std::vector<int64_t>& values, c10::IntArrayRef dims) {
  Tensor tensor = empty_tensor(dims, at::kLong, cpu_device());
  std::memcpy(tensor.data_ptr<int64_t>(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

class TextStream final : public FeedStream {
 public:
  TextStream(std::shared_ptr<const data::Samples> samples, std::unique_ptr<data::Order> order, data::Position start)
      : batches_(std::move(samples), std::move(order), start) {}

  std::optional<FedBatch> next(int64_t) override {
    std::optional<data::Batch> made = batches_.next();
    if (!made) return {};
    FedBatch fed{made->position, batch_tensors(*made), std::move(made->samples), {}};
    const int64_t targets = made->rows ? static_cast<int64_t>(made->targets.size()) / made->rows : 0;
    for (int64_t row = 0; row < made->rows; ++row) {
      const auto first = made->targets.begin() + row * targets;
      fed.weights.push_back(targets - std::count(first, first + targets, data::kIgnoredTarget));
    }
    return fed;
  }
  std::optional<data::Position> position() const override { return batches_.position(); }
  data::LoaderStatistics statistics() const override { return batches_.statistics(); }

 private:
  data::Batches batches_;
};

class TokenFeed final : public Feed {
 public:
  explicit TokenFeed(std::shared_ptr<const data::Samples> samples) : samples_(std::move(samples)) {}
  int64_t count() const override { return samples_->count(); }
  int64_t tokens() const override { return samples_->length(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start, uint64_t) const override {
    return std::make_unique<TextStream>(samples_, std::move(order), start);
  }

 private:
  std::shared_ptr<const data::Samples> samples_;
};

}  // namespace

Batch batch_tensors(const data::Batch& batch) {
  const std::vector<int64_t> dims = batch.labelled ? std::vector{batch.rows} : std::vector{batch.rows, batch.length};
  return {whole_numbers(batch.inputs, {batch.rows, batch.length}), whole_numbers(batch.targets, dims)};
}

std::shared_ptr<const Feed> make_text_feed(std::shared_ptr<const data::Samples> samples) {
  return samples ? std::make_shared<TokenFeed>(std::move(samples)) : nullptr;
}

}  // namespace veil
