#include "base/error.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/mpi_lane.h"
#include "comm/rank_link.h"

namespace veil {
namespace {

class MpiPending : public Pending {
 public:
  MpiPending(std::future<void> done, MpiLane::Moments moments)
      : done_(done.share()), moments_(std::move(moments)) {}
  // The worker has emptied its stream before it calls a task done, so waiting for the worker is
  // enough on a GPU, too.
  void wait() override { done_.get(); }
  Marker began() const override { return moments_.began; }
  Marker ended() const override { return moments_.ended; }

 private:
  std::shared_future<void> done_;
  MpiLane::Moments moments_;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(MpiWorker& worker, int lane, Device device) : lane_(worker, lane, device) {}

  std::string backend() const override { return "mpi"; }
  int rank() const override { return lane_.worker().rank(); }
  int size() const override { return lane_.worker().size(); }
  std::string why_not_capturable() const override {
    return lane_.device().is_cuda() ? "ranks that share a GPU exchange data through the host (MPI)"
                                    : "graphs are captured on a GPU, these ranks run on CPU";
  }
  void set_timing(bool on) override { timing_ = on; }

  PendingPtr all_gather(const Tensor& shard, const Tensor& whole) override {
    check_all_gather(shard, whole, size(), lane_.device());
    return post([s = RawTensor(shard), w = RawTensor(whole)](MpiLane& lane, auto& moments) {
      return lane.all_gather(s, w, moments);
    });
  }
  PendingPtr reduce_scatter(const Tensor& whole, const Tensor& shard) override {
    check_reduce_scatter(whole, shard, size(), lane_.device());
    return post([s = RawTensor(shard), w = RawTensor(whole)](MpiLane& lane, auto& moments) {
      return lane.reduce_scatter(w, s, moments);
    });
  }
  PendingPtr all_reduce(const Tensor& data) override {
    check_all_reduce(data, lane_.device());
    return post([d = RawTensor(data)](MpiLane& lane, auto& moments) {
      return lane.all_reduce(d, moments);
    });
  }
  PendingPtr broadcast(const Tensor& data, int root) override {
    check_broadcast(data, root, size(), lane_.device());
    return post([d = RawTensor(data), root](MpiLane& lane, auto& moments) {
      return lane.broadcast(d, root, moments);
    });
  }
  void barrier() override {
    lane_.worker().post(lane_.queue(), [this] { return lane_.barrier(); }).get();
  }

 private:
  template <typename Work>
  PendingPtr post(Work work) {
    MpiLane::Moments moments;
    if (lane_.device().is_cuda()) {
      moments.start = Marker::ordering(lane_.device());
      moments.start.record();
    }
    if (timing_) {
      moments.began = Marker::timed(lane_.device());
      moments.ended = Marker::timed(lane_.device());
    }
    auto done =
        lane_.worker().post(lane_.queue(), [this, work, moments] { return work(lane_, moments); });
    return std::make_shared<MpiPending>(std::move(done), moments);
  }

  MpiLane lane_;
  bool timing_ = false;
};

}  // namespace

bool built_with_mpi() {
  return true;
}

std::unique_ptr<Communicator> make_mpi_communicator(int lane, Device device) {
  MpiWorker* worker = mpi_worker();
  if (!worker) {
    const Membership* member = current_membership();
    VEIL_CHECK(!member || member->info.world == 1,
               "an MPI communicator of {} ranks that have not joined by MPI", member->info.world);
    return make_lone_communicator("mpi", device);
  }
  return std::make_unique<MpiCommunicator>(*worker, lane, device);
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  // allowed before MPI_Init
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text);
  return version.substr(0, version.find_first_of(",\n"));
}

}  // namespace veil
