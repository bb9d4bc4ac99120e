// Collectives over the wire's point-to-point messages, as tasks of the worker. For ranks on CPU,
// and ranks that share a GPU.
#pragma once

#include "comm/host_staging.h"
#include "comm/rank_worker.h"

namespace veil {

// What ranks tell each other before any data moves, so that a disagreement is an error on every
// rank and not a hang.
struct CallHeader {
  enum Kind : int64_t { barrier, all_gather, reduce_scatter, all_to_all, all_reduce, broadcast };
  int64_t kind = barrier, dtype = 0, count = 0, root = 0;  // all_to_all: its rows are the root
  bool operator==(const CallHeader&) const = default;
};
std::string describe(const CallHeader& header);

// Memory of a tensor. The tensor itself stays with the caller, who keeps it allocated until wait()
// has returned.
struct RawTensor {
  std::byte* data = nullptr;
  int64_t count = 0;
  size_t element_bytes = 1;
  DType dtype = at::kFloat;
  explicit RawTensor(const Tensor& tensor);
  std::byte* at(int64_t element) const {
    return data + static_cast<size_t>(element) * element_bytes;
  }
};

// A buffer of `count` elements in one piece per rank: pieces of `step` elements, each starting
// `stride` after the one before, cut at the end.
struct Pieces {
  int64_t count = 0, stride = 0, step = 0;
  int64_t begin(int rank) const { return std::min(count, rank * stride); }
  int64_t size(int rank) const { return std::min(step, count - begin(rank)); }
};

// One queue of collectives: a channel of its own and a staging area. All tasks run on the
// worker.
//
// Large data passes in rounds, each as long as a staging slot. On CPU the tensors' memory is sent
// from and, but for sums, received into directly; a GPU's passes through the slots.
class HostLane {
 public:
  HostLane(RankWorker& worker, int lane, Device device);
  ~HostLane();
  HostLane(const HostLane&) = delete;
  HostLane& operator=(const HostLane&) = delete;

  RankWorker& worker() const { return worker_; }
  int queue() const { return queue_; }
  Device device() const { return device_; }

  // `began` and `ended` may be empty. `start` is when the caller's stream is ready.
  struct Moments {
    Marker start, began, ended;
  };
  RankTask barrier();
  RankTask all_gather(RawTensor shard, RawTensor whole, Moments moments);
  RankTask reduce_scatter(RawTensor whole, RawTensor shard, Moments moments);
  RankTask all_to_all(RawTensor rows, RawTensor received, int64_t count, Moments moments);
  RankTask all_reduce(RawTensor data, Moments moments);
  RankTask broadcast(RawTensor data, int root, Moments moments);

 private:
  // A collective is a sequence of steps; each step is asked `done()` until it is.
  class Agreement;
  class Sum;
  class Gather;
  class Exchange;
  class Spread;

  RankTask agree_on_lane(int lane);
  void begin(const Moments& moments);
  void end(const Moments& moments);
  RankWorker& worker_;
  int queue_;
  Device device_;
  int rank_, size_;
  std::unique_ptr<Channel> channel_;
  Stream stream_;
  HostStaging staging_;  // 2 * size slots
};

}  // namespace veil
