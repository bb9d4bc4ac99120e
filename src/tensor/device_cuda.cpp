#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "base/error.h"
#include "tensor/category.h"
#include "tensor/device.h"

namespace veil {

bool built_with_cuda() {
  return true;
}

int gpu_count() {
  static const int count = c10::cuda::device_count();  // 0 and no throw if there is no driver
  return count;
}

std::vector<GpuInfo> gpus() {
  std::vector<GpuInfo> found;
  for (int i = 0; i < gpu_count(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    found.push_back({i, properties.name, static_cast<int64_t>(properties.totalGlobalMem),
                     properties.major, properties.minor, properties.multiProcessorCount});
  }
  return found;
}

int gpu_capability(Device device) {
  if (!device.is_cuda()) return 0;
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  return properties->major * 10 + properties->minor;
}

std::string cuda_runtime_version() {
  int version = 0;
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) return "";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string cudnn_version() {
  const long version = at::detail::getCUDAHooks().versionCuDNN();
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Device gpu_device(int index) {
  if (gpu_count() == 0)
    throw MissingBackend(
        "`device` gpu: no GPU answers; run on a machine with one, or pass `device` cpu");
  if (index < 0 || index >= gpu_count()) {
    throw MissingBackend(
        fmt::format("`device` gpu: GPU {} was requested, this machine has {}", index, gpu_count()));
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  return Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

void synchronize(Device device) {
  if (!device.is_cuda()) return;
  c10::cuda::CUDAGuard guard(device);
  c10::cuda::device_synchronize();
}

void reserve_library_workspaces(Device device) {
  if (!device.is_cuda()) return;
  c10::cuda::CUDAGuard guard(device);
  CategoryScope scope(Category::temporary);
  at::cuda::getCurrentCUDABlasHandle();
  at::cuda::getCUDABlasLtWorkspace();
}

void release_cached_memory(Device device) {
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::emptyCache();
}

void release_library_workspaces(Device device) {
  if (!device.is_cuda()) return;
  synchronize(device);
  at::cuda::clearCublasWorkspaces();
}

}  // namespace veil
