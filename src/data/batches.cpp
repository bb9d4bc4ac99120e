#include "data/batches.h"

#include <algorithm>

#include "base/clock.h"

namespace veil::data {

Batch make_batch(const Samples& samples, const std::vector<int64_t>& chosen) {
  Batch batch;
  batch.rows = static_cast<int64_t>(chosen.size());
  batch.length = samples.length();
  batch.labelled = samples.options().kind == SampleKind::labelled;
  batch.samples = chosen;
  batch.inputs.resize(chosen.size() * static_cast<size_t>(samples.length()));
  batch.targets.resize(chosen.size() * static_cast<size_t>(samples.targets()));
  int64_t *inputs = batch.inputs.data(), *targets = batch.targets.data();
  for (const int64_t sample : chosen) {
    if (sample == kNoSample) {
      samples.fill_padding(inputs, targets);
      batch.lengths.push_back(0);
    } else {
      batch.lengths.push_back(samples.fill(sample, inputs, targets));
    }
    inputs += samples.length();
    targets += samples.targets();
  }
  return batch;
}

Batches::Batches(std::shared_ptr<const Samples> samples, std::unique_ptr<Order> order,
                 Position start, int64_t ahead)
    : samples_(std::move(samples)),
      order_(std::move(order)),
      ahead_(static_cast<size_t>(std::max<int64_t>(1, ahead))),
      position_(start),
      thread_([this, start] { work(start); }) {}

Batches::~Batches() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Batches::work(Position start) {
  std::optional<Position> position = start;
  while (position) {
    const double begin_ms = steady_ms();
    std::optional<Batch> batch;
    std::exception_ptr failed;
    try {
      batch = make_batch(*samples_, order_->samples(*position));
      batch->position = *position;
      position = order_->after(*position);
    } catch (...) {
      failed = std::current_exception();
    }
    const double end_ms = steady_ms();
    std::unique_lock lock(mutex_);
    statistics_.busy_ms += end_ms - begin_ms;
    changed_.wait(lock, [&] { return stop_ || failed || ready_.size() < ahead_; });
    if (stop_) return;
    if (failed) {
      failed_ = failed;
      position.reset();
    } else {
      ready_.push_back(std::move(*batch));
    }
    ended_ = !position;
    lock.unlock();
    changed_.notify_all();
  }
}

std::optional<Batch> Batches::next() {
  std::unique_lock lock(mutex_);
  const double begin_ms = steady_ms();
  changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
  statistics_.waited_ms += steady_ms() - begin_ms;
  if (ready_.empty()) {
    position_.reset();
    if (failed_) std::rethrow_exception(failed_);
    return {};
  }
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++statistics_.batches;
  position_ = order_->after(batch.position);  // const: the thread may be asking as well
  lock.unlock();
  changed_.notify_all();
  return batch;
}

std::optional<Position> Batches::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

LoaderStatistics Batches::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

}  // namespace veil::data
