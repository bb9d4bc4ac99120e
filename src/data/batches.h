// The loader: batches made ahead of the step that takes them, on a thread of their own.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "data/order.h"
#include "data/samples.h"

namespace veil::data {

struct Batch {
  Position position;
  int64_t rows = 0, length = 0;
  bool labelled = false;         // targets are [rows]
  std::vector<int64_t> samples;  // [rows], kNoSample for padding
  std::vector<int64_t> inputs;   // [rows, length]
  std::vector<int64_t> targets;  // [rows, length], or [rows] labels
  std::vector<int64_t> lengths;  // [rows]: inputs that are real; 0 for padding
};

// A batch of these samples, made now.
Batch make_batch(const Samples& samples, const std::vector<int64_t>& chosen);

struct LoaderStatistics {
  int64_t batches = 0;   // taken
  double busy_ms = 0;    // the loader's thread spent making batches
  double waited_ms = 0;  // next() spent waiting for one
};

class Batches {
 public:
  // Begins to work at once, from `start` on, and keeps up to `ahead` batches ready.
  Batches(std::shared_ptr<const Samples> samples, std::unique_ptr<Order> order, Position start = {},
          int64_t ahead = 4);
  ~Batches();
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // The next batch; nothing at the order's end. What failed on the thread is thrown here.
  std::optional<Batch> next();

  // Where the next batch is, whatever is already made ahead; nothing at the order's end. A
  // loader that starts there delivers what this one would.
  std::optional<Position> position() const;
  LoaderStatistics statistics() const;

 private:
  void work(Position start);

  std::shared_ptr<const Samples> samples_;
  std::unique_ptr<Order> order_;
  const size_t ahead_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::optional<Position> position_;
  LoaderStatistics statistics_;
  std::exception_ptr failed_;
  bool ended_ = false, stop_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace veil::data
