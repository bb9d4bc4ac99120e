#include "train/canary_feed.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"

namespace veil {
namespace {

// One batch of one sample.
class OneSampleOrder final : public data::Order {
 public:
  explicit OneSampleOrder(int64_t sample) : sample_(sample) {}
  std::vector<int64_t> samples(const data::Position&) override { return {sample_}; }
  std::optional<data::Position> after(const data::Position&) const override { return {}; }

 private:
  int64_t sample_;
};

// Which rows of a batch are canaries, from the thread that orders to the one that takes.
class CanaryRows {
 public:
  void put(const data::Position& at, std::vector<std::pair<size_t, int64_t>> rows) {
    const std::lock_guard lock(mutex_);
    rows_[{at.epoch, at.step}] = std::move(rows);
  }
  std::vector<std::pair<size_t, int64_t>> take(const data::Position& at) {
    const std::lock_guard lock(mutex_);
    auto found = rows_.extract({at.epoch, at.step});
    return found.empty() ? std::vector<std::pair<size_t, int64_t>>{} : std::move(found.mapped());
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<size_t, int64_t>>> rows_;
};

// The order with padding where canaries stand.
class CanaryOrder final : public data::Order {
 public:
  CanaryOrder(std::unique_ptr<data::Order> order, int64_t first, int64_t count,
              std::shared_ptr<CanaryRows> rows)
      : order_(std::move(order)), first_(first), count_(count), rows_(std::move(rows)) {}
  std::vector<int64_t> samples(const data::Position& position) override {
    std::vector<int64_t> chosen = order_->samples(position);
    std::vector<std::pair<size_t, int64_t>> rows;
    for (size_t row = 0; row < chosen.size(); ++row) {
      if (chosen[row] < first_ || chosen[row] >= first_ + count_) continue;
      rows.emplace_back(row, chosen[row]);
      chosen[row] = data::kNoSample;
    }
    if (!rows.empty()) rows_->put(position, std::move(rows));
    return chosen;
  }
  std::optional<data::Position> after(const data::Position& position) const override {
    return order_->after(position);
  }

 private:
  std::unique_ptr<data::Order> order_;
  int64_t first_, count_;
  std::shared_ptr<CanaryRows> rows_;
};

class CanaryStream final : public FeedStream {
 public:
  CanaryStream(std::unique_ptr<FeedStream> stream, const Canaries& canaries,
               std::shared_ptr<CanaryRows> rows)
      : stream_(std::move(stream)), canaries_(canaries), rows_(std::move(rows)) {}

  std::optional<FedBatch> next(int64_t step) override {
    std::optional<FedBatch> fed = stream_->next(step);
    if (!fed) return fed;
    for (const auto& [row, number] : rows_->take(fed->position)) {
      const auto which = static_cast<size_t>(number - canaries_.first);
      if (!canaries_.present[which]) continue;
      const auto put = [at = static_cast<int64_t>(row)](const Tensor& to, const Tensor& from) {
        if (to.defined()) to.narrow(0, at, 1).copy_(from);
      };
      const Batch& canary = canaries_.rows[which];
      put(fed->batch.inputs, canary.inputs);
      put(fed->batch.targets, canary.targets);
      put(fed->batch.conditions, canary.conditions);
      fed->samples[row] = number;
    }
    return fed;
  }
  std::optional<data::Position> position() const override { return stream_->position(); }
  data::LoaderStatistics statistics() const override { return stream_->statistics(); }

 private:
  std::unique_ptr<FeedStream> stream_;
  const Canaries& canaries_;
  std::shared_ptr<CanaryRows> rows_;
};

class CanaryFeed final : public Feed {
 public:
  CanaryFeed(std::shared_ptr<const Feed> base, Canaries canaries)
      : base_(std::move(base)), canaries_(std::move(canaries)) {
    VEIL_CHECK(canaries_.rows.size() == canaries_.present.size() && canaries_.first >= 0 &&
                   canaries_.first <= base_->count(),
               "canaries that do not fit their feed");
  }
  int64_t count() const override {
    return std::max(base_->count(), canaries_.first + std::ssize(canaries_.rows));
  }
  int64_t present() const override {
    return count() - std::count(canaries_.present.begin(), canaries_.present.end(), false);
  }
  int64_t tokens() const override { return base_->tokens(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t seed) const override {
    auto rows = std::make_shared<CanaryRows>();
    auto without = std::make_unique<CanaryOrder>(std::move(order), canaries_.first,
                                                 std::ssize(canaries_.rows), rows);
    return std::make_unique<CanaryStream>(base_->open(std::move(without), start, seed), canaries_,
                                          rows);
  }

 private:
  std::shared_ptr<const Feed> base_;
  Canaries canaries_;
};

class FirstSamples final : public Feed {
 public:
  FirstSamples(std::shared_ptr<const Feed> base, int64_t count)
      : base_(std::move(base)), count_(count) {}
  int64_t count() const override { return count_; }
  int64_t tokens() const override { return base_->tokens(); }
  std::unique_ptr<FeedStream> open(std::unique_ptr<data::Order> order, data::Position start,
                                   uint64_t seed) const override {
    return base_->open(std::move(order), start, seed);
  }

 private:
  std::shared_ptr<const Feed> base_;
  int64_t count_;
};

}  // namespace

Batch feed_row(const Feed& feed, int64_t sample, uint64_t seed) {
  const auto fed = feed.open(std::make_unique<OneSampleOrder>(sample), {}, seed)->next(1);
  VEIL_CHECK(fed, "a feed without sample {}", sample);
  return fed->batch.each([](const Tensor& tensor) { return tensor.clone(); });
}

std::shared_ptr<const Feed> with_canaries(std::shared_ptr<const Feed> base, Canaries canaries) {
  return std::make_shared<CanaryFeed>(std::move(base), std::move(canaries));
}

std::shared_ptr<const Feed> first_samples(std::shared_ptr<const Feed> base, int64_t count) {
  return std::make_shared<FirstSamples>(std::move(base), count);
}

}  // namespace veil
