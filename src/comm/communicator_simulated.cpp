// Rank r of W without peers. Buffers, streams and traffic into the own memory are real; what would
// have come from peers is made from the own data:
//   all_gather      slot p holds the own shard rotated by an offset that depends on p: the same
//                   numbers, no two slots alike, and no memory besides the caller's
//   sums            the own contribution alone
//   all_to_all      a peer's rows are the own ones, rotated as the numbers of a gathered slot are:
//                   what is gathered of rows belongs to them
#include <cmath>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/host_staging.h"

namespace veil {
namespace {

class SimulatedPending : public Pending {
 public:
  SimulatedPending(Marker began, Marker finished, Marker ended, double modelled_ms)
      : began_(std::move(began)),
        finished_(std::move(finished)),
        ended_(std::move(ended)),
        modelled_ms_(modelled_ms) {}
  void wait() override { finished_.wait(); }
  Marker began() const override { return began_; }
  Marker ended() const override { return ended_; }
  double modelled_ms() const override { return modelled_ms_; }

 private:
  Marker began_, finished_, ended_;
  double modelled_ms_;
};

std::byte* memory(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

class SimulatedCommunicator : public Communicator {
 public:
  SimulatedCommunicator(std::string backend, int rank, int size, Device device, SimulatedLink link)
      : backend_(std::move(backend)),
        rank_(rank),
        size_(size),
        device_(device),
        link_(link),
        stream_(Stream::create(device)) {
    VEIL_CHECK(size >= 1 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  }

  std::string backend() const override { return backend_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string why_not_capturable() const override {
    return device_.is_cuda() ? "" : "graphs are captured on a GPU, this rank runs on CPU";
  }
  void set_timing(bool on) override { timing_ = on; }

  PendingPtr all_gather(const Tensor& shard, const Tensor& whole) override {
    check_all_gather(shard, whole, size_, device_);
    return run(ring_ms(size_ - 1, shard.nbytes()), [&] {
      const size_t n = shard.nbytes();
      for (int p = 0; p < size_; ++p) {
        std::byte* slot = memory(whole) + static_cast<size_t>(p) * n;
        if (p != rank_) {
          const size_t head = offset(p, shard.numel()) * shard.element_size();
          copy_bytes(slot, memory(shard) + head, n - head, device_);
          copy_bytes(slot + (n - head), memory(shard), head, device_);
        } else if (slot != memory(shard)) {
          copy_bytes(slot, memory(shard), n, device_);
        }
      }
    });
  }

  PendingPtr reduce_scatter(const Tensor& whole, const Tensor& shard) override {
    check_reduce_scatter(whole, shard, size_, device_);
    return run(ring_ms(size_ - 1, shard.nbytes()), [&] {
      const std::byte* own = memory(whole) + static_cast<size_t>(rank_) * shard.nbytes();
      if (own != memory(shard)) copy_bytes(memory(shard), own, shard.nbytes(), device_);
    });
  }

  PendingPtr all_to_all(const Tensor& rows, const Tensor& received) override {
    check_all_to_all(rows, received, size_, device_);
    const size_t n = static_cast<size_t>(received.size(1)) * received.element_size();
    const int64_t count = rows.size(0);
    return run(ring_ms(size_ - 1, static_cast<size_t>(count) * n), [&] {
      for (int p = 0; p < size_; ++p) {
        const auto head = static_cast<int64_t>(p == rank_ ? 0 : offset(p, count));
        for (int64_t i = 0; i < count; ++i) {
          copy_bytes(memory(received) + static_cast<size_t>(p * count + i) * n,
                     memory(rows) + static_cast<size_t>((i + head) % count * size_ + rank_) * n, n,
                     device_);
        }
      }
    });
  }

  PendingPtr all_reduce(const Tensor& data) override {
    check_all_reduce(data, device_);
    return run(ring_ms(2 * (size_ - 1), (data.nbytes() + static_cast<size_t>(size_) - 1) /
                                            static_cast<size_t>(size_)),
               [] {});
  }

  PendingPtr broadcast(const Tensor& data, int root) override {
    check_broadcast(data, root, size_, device_);
    // Pipelined along the ring: the last rank starts size - 1 hops late.
    const double ms = size_ == 1 ? 0 : ring_ms(1, data.nbytes()) + ring_ms(size_ - 2, 0);
    return run(ms, [] {});
  }

  void barrier() override {}

 private:
  // Where rank p's copy of the shard begins: spread over the shard by the golden ratio, and not 0
  // if there is a choice.
  static size_t offset(int p, int64_t count) {
    if (count < 2) return 0;
    constexpr int64_t kTogether = 64, kLarge = int64_t{1} << 20;
    if (count < kLarge) {
      return 1 + (static_cast<uint64_t>(p + 1) * 0x9E3779B97F4A7C15ull) %
                     static_cast<uint64_t>(count - 1);
    }
    // Copies from addresses that are not aligned take several times as long and slow down what is
    // computed meanwhile.
    const double turns = (p + 1) * 0.6180339887498949, part = turns - std::floor(turns);
    const auto places = static_cast<double>(count / kTogether - 1);
    return static_cast<size_t>(kTogether) * (1 + static_cast<size_t>(part * places));
  }

  // A ring collective: `steps` messages of `bytes` one after the other.
  double ring_ms(int steps, size_t bytes) const {
    return steps * (link_.latency_s + static_cast<double>(bytes) / link_.bandwidth_bytes_per_s) *
           1e3;
  }

  template <typename Work>
  PendingPtr run(double modelled_ms, Work work) {
    Marker start = Marker::ordering(device_), finished = Marker::ordering(device_), began, ended;
    start.record();
    StreamGuard guard(stream_);
    start.wait();
    if (timing_) {
      began = Marker::timed(device_);
      began.record();
    }
    work();
    if (timing_) {
      ended = Marker::timed(device_);
      ended.record();
    }
    finished.record();
    return std::make_shared<SimulatedPending>(began, finished, ended, modelled_ms);
  }

  std::string backend_;
  int rank_, size_;
  Device device_;
  SimulatedLink link_;
  Stream stream_;
  bool timing_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_simulated_communicator(int rank, int size, Device device,
                                                          SimulatedLink link) {
  return std::make_unique<SimulatedCommunicator>("simulated", rank, size, device, link);
}

std::unique_ptr<Communicator> make_lone_communicator(const std::string& backend, Device device) {
  return std::make_unique<SimulatedCommunicator>(backend, 0, 1, device, SimulatedLink{});
}

}  // namespace veil
