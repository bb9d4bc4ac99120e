#include "base/error.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/host_lane.h"
#include "comm/rank_link.h"

namespace veil {
namespace {

class HostPending : public Pending {
 public:
  HostPending(std::future<void> done, HostLane::Moments moments)
      : done_(done.share()), moments_(std::move(moments)) {}
  // The worker has emptied its stream before it calls a task done, so waiting for the worker is
  // enough on a GPU, too.
  void wait() override { done_.get(); }
  Marker began() const override { return moments_.began; }
  Marker ended() const override { return moments_.ended; }

 private:
  std::shared_future<void> done_;
  HostLane::Moments moments_;
};

class HostCommunicator : public Communicator {
 public:
  HostCommunicator(RankWorker& worker, int lane, Device device) : lane_(worker, lane, device) {}

  std::string backend() const override { return lane_.worker().wire().name(); }
  int rank() const override { return lane_.worker().rank(); }
  int size() const override { return lane_.worker().size(); }
  std::string why_not_capturable() const override {
    return lane_.device().is_cuda() ? "ranks that share a GPU exchange data through the host"
                                    : "graphs are captured on a GPU, these ranks run on CPU";
  }
  void set_timing(bool on) override { timing_ = on; }

  PendingPtr all_gather(const Tensor& shard, const Tensor& whole) override {
    check_all_gather(shard, whole, size(), lane_.device());
    return post({CallHeader::all_gather, dtype_of(shard), shard.numel()},
                [s = RawTensor(shard), w = RawTensor(whole)](HostLane& lane, auto& moments) {
                  return lane.all_gather(s, w, moments);
                });
  }
  PendingPtr reduce_scatter(const Tensor& whole, const Tensor& shard) override {
    check_reduce_scatter(whole, shard, size(), lane_.device());
    return post({CallHeader::reduce_scatter, dtype_of(shard), shard.numel()},
                [s = RawTensor(shard), w = RawTensor(whole)](HostLane& lane, auto& moments) {
                  return lane.reduce_scatter(w, s, moments);
                });
  }
  PendingPtr all_to_all(const Tensor& rows, const Tensor& received) override {
    check_all_to_all(rows, received, size(), lane_.device());
    return post(
        {CallHeader::all_to_all, dtype_of(rows), rows.size(1), rows.size(0)},
        [from = RawTensor(rows), to = RawTensor(received), count = rows.size(0)](
            HostLane& lane, auto& moments) { return lane.all_to_all(from, to, count, moments); });
  }
  PendingPtr all_reduce(const Tensor& data) override {
    check_all_reduce(data, lane_.device());
    return post({CallHeader::all_reduce, dtype_of(data), data.numel()},
                [d = RawTensor(data)](HostLane& lane, auto& moments) {
                  return lane.all_reduce(d, moments);
                });
  }
  PendingPtr broadcast(const Tensor& data, int root) override {
    check_broadcast(data, root, size(), lane_.device());
    return post({CallHeader::broadcast, dtype_of(data), data.numel(), root},
                [d = RawTensor(data), root](HostLane& lane, auto& moments) {
                  return lane.broadcast(d, root, moments);
                });
  }
  void barrier() override {
    lane_.worker()
        .post(
            lane_.queue(), [this] { return lane_.barrier(); }, name_of({}))
        .get();
  }

 private:
  static int64_t dtype_of(const Tensor& tensor) {
    return static_cast<int64_t>(tensor.scalar_type());
  }
  static TaskName name_of(const CallHeader& header) {
    return {[header] { return describe(header); }, current_place()};
  }

  template <typename Work>
  PendingPtr post(const CallHeader& header, Work work) {
    HostLane::Moments moments;
    if (lane_.device().is_cuda()) {
      moments.start = Marker::ordering(lane_.device());
      moments.start.record();
    }
    if (timing_) {
      moments.began = Marker::timed(lane_.device());
      moments.ended = Marker::timed(lane_.device());
    }
    auto done = lane_.worker().post(
        lane_.queue(), [this, work, moments] { return work(lane_, moments); }, name_of(header));
    return std::make_shared<HostPending>(std::move(done), moments);
  }

  HostLane lane_;
  bool timing_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(int lane, Device device) {
  const Membership* member = current_membership();
  if (!member || !member->link) return make_lone_communicator("host", device);
  return std::make_unique<HostCommunicator>(member->link->worker(), lane, device);
}

}  // namespace veil
