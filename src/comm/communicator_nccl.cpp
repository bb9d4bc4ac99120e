#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "comm/collectives.h"
#include "comm/communicator.h"
#include "comm/host_staging.h"
#include "comm/rank_link.h"

namespace veil {
namespace {

void check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw std::runtime_error(fmt::format("{}: {}", call, ncclGetErrorString(result)));
}

ncclDataType_t sum_type(DType dtype) {
  switch (dtype) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("sums of type {} are not defined", dtype_name(dtype)));
  }
}

class NcclPending : public Pending {
 public:
  NcclPending(Marker began, Marker finished, Marker ended)
      : began_(std::move(began)), finished_(std::move(finished)), ended_(std::move(ended)) {}
  void wait() override { finished_.wait(); }
  Marker began() const override { return began_; }
  Marker ended() const override { return ended_; }

 private:
  Marker began_, finished_, ended_;
};

// Ends all ranks if NCCL reports that a peer or the network is gone: its kernels would wait for
// ever.
class Watchdog {
 public:
  explicit Watchdog(ncclComm_t comm) : thread_([this, comm] { watch(comm); }) {}
  ~Watchdog() {
    stopping_ = true;
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(ncclComm_t comm) {
    while (!stopping_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ncclResult_t state = ncclSuccess;
      if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state == ncclSuccess ||
          state == ncclInProgress)
        continue;
      const std::string reason =
          fmt::format("NCCL: {} ({})", ncclGetErrorString(state), ncclGetLastError(comm));
      std::thread([comm] {
        ncclCommAbort(comm);
      }).detach();  // frees the GPU; the process ends whether it returns or not
      fail_current_world(reason, kExitFailed);
    }
  }

  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const Membership& member, Device device)
      : rank_(member.info.rank),
        size_(member.info.world),
        device_(device),
        stream_(Stream::create(device)) {
    gpu_device(device.index());
    ncclUniqueId id{};
    if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (size_ > 1) {
      VEIL_CHECK(member.link, "{} ranks without a link", size_);
      member.link->share(&id, sizeof id);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    check_nccl(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "ncclCommInitRankConfig");
    C10_CUDA_CHECK(cudaMalloc(&token_, sizeof(float)));
    C10_CUDA_CHECK(cudaMemset(token_, 0, sizeof(float)));
    watchdog_ = std::make_unique<Watchdog>(comm_);
  }

  ~NcclCommunicator() override {
    watchdog_.reset();
    C10_CUDA_CHECK_WARN(cudaStreamSynchronize(cuda_stream()));
    ncclCommDestroy(comm_);
    C10_CUDA_CHECK_WARN(cudaFree(token_));
  }

  std::string backend() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string why_not_capturable() const override { return ""; }
  void set_timing(bool on) override { timing_ = on; }

  PendingPtr all_gather(const Tensor& shard, const Tensor& whole) override {
    check_all_gather(shard, whole, size_, device_);
    return run("ncclAllGather", [&](cudaStream_t stream) {
      return ncclAllGather(shard.data_ptr(), whole.data_ptr(), shard.nbytes(), ncclInt8, comm_,
                           stream);
    });
  }

  PendingPtr reduce_scatter(const Tensor& whole, const Tensor& shard) override {
    check_reduce_scatter(whole, shard, size_, device_);
    return run("ncclReduceScatter", [&](cudaStream_t stream) {
      return ncclReduceScatter(whole.data_ptr(), shard.data_ptr(),
                               static_cast<size_t>(shard.numel()), sum_type(shard.scalar_type()),
                               ncclSum, comm_, stream);
    });
  }

  PendingPtr all_to_all(const Tensor& rows, const Tensor& received) override {
    check_all_to_all(rows, received, size_, device_);
    return run("ncclSend, ncclRecv", [&](cudaStream_t stream) {
      const size_t n = static_cast<size_t>(received.size(1)) * received.element_size();
      const int64_t count = rows.size(0);
      const auto* from = static_cast<const std::byte*>(rows.data_ptr());
      auto* to = static_cast<std::byte*>(received.data_ptr());
      // NCCL limits the operations of a group: one group for each row.
      ncclResult_t result = ncclSuccess;
      for (int64_t i = 0; i < count && result == ncclSuccess; ++i) {
        result = ncclGroupStart();
        for (int p = 0; p < size_ && result == ncclSuccess; ++p) {
          result = ncclSend(from + static_cast<size_t>(i * size_ + p) * n, n, ncclInt8, p, comm_,
                            stream);
          if (result == ncclSuccess)
            result = ncclRecv(to + static_cast<size_t>(p * count + i) * n, n, ncclInt8, p, comm_,
                              stream);
        }
        const ncclResult_t ended = ncclGroupEnd();
        if (result == ncclSuccess) result = ended;
      }
      return result;
    });
  }

  PendingPtr all_reduce(const Tensor& data) override {
    check_all_reduce(data, device_);
    return run("ncclAllReduce", [&](cudaStream_t stream) {
      return ncclAllReduce(data.data_ptr(), data.data_ptr(), static_cast<size_t>(data.numel()),
                           sum_type(data.scalar_type()), ncclSum, comm_, stream);
    });
  }

  PendingPtr broadcast(const Tensor& data, int root) override {
    check_broadcast(data, root, size_, device_);
    return run("ncclBroadcast", [&](cudaStream_t stream) {
      return ncclBroadcast(data.data_ptr(), data.data_ptr(), data.nbytes(), ncclInt8, root, comm_,
                           stream);
    });
  }

  void barrier() override {
    check_nccl(ncclAllReduce(token_, token_, 1, ncclFloat32, ncclSum, comm_, cuda_stream()),
               "ncclAllReduce");
    C10_CUDA_CHECK(cudaStreamSynchronize(cuda_stream()));
  }

 private:
  cudaStream_t cuda_stream() const { return static_cast<cudaStream_t>(stream_.handle()); }

  template <typename Work>
  PendingPtr run(const char* call, Work work) {
    Marker start = Marker::ordering(device_), finished = Marker::ordering(device_), began, ended;
    start.record();
    StreamGuard guard(stream_);
    start.wait();
    if (timing_) {
      began = Marker::timed(device_);
      began.record();
    }
    check_nccl(work(cuda_stream()), call);
    if (timing_) {
      ended = Marker::timed(device_);
      ended.record();
    }
    finished.record();
    return std::make_shared<NcclPending>(began, finished, ended);
  }

  int rank_, size_;
  Device device_;
  Stream stream_;
  ncclComm_t comm_ = nullptr;
  void* token_ = nullptr;  // what a barrier sums; outside LibTorch, so that no ledger sees it
  std::unique_ptr<Watchdog> watchdog_;
  bool timing_ = false;
};

}  // namespace

bool built_with_nccl() {
  return true;
}

std::unique_ptr<Communicator> make_nccl_communicator(int, Device device) {
  VEIL_CHECK(device.is_cuda(), "NCCL joins GPUs, not {}", device.str());
  const Membership* member = current_membership();
  return std::make_unique<NcclCommunicator>(member ? *member : Membership{}, device);
}

std::string nccl_library_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace veil
