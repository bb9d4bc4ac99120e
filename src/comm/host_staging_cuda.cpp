#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "comm/host_staging.h"

namespace veil {

void copy_bytes(void* to, const void* from, size_t bytes, Device device) {
  if (bytes == 0) return;
  if (!device.is_cuda()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
}

void drain_current_stream(Device device) {
  if (device.is_cuda())
    C10_CUDA_CHECK(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device.index()).stream()));
}

HostStaging::HostStaging(Device device, int slots, size_t slot_bytes)
    : device_(device), slot_bytes_(slot_bytes) {
  const size_t bytes = static_cast<size_t>(slots) * slot_bytes;
  if (device.is_cuda()) {
    c10::cuda::CUDAGuard guard(device);
    void* memory = nullptr;
    C10_CUDA_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
    data_ = static_cast<std::byte*>(memory);
  } else {
    plain_.resize(bytes);
    data_ = plain_.data();
  }
}

HostStaging::~HostStaging() {
  if (device_.is_cuda() && data_) C10_CUDA_CHECK_WARN(cudaFreeHost(data_));
}

}  // namespace veil
