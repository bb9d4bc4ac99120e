#include "base/error.h"
#include "tensor/device.h"

namespace veil {

bool built_with_cuda() {
  return false;
}
int gpu_count() {
  return 0;
}
std::vector<GpuInfo> gpus() {
  return {};
}
int gpu_capability(Device) {
  return 0;
}
std::string cuda_runtime_version() {
  return "";
}
std::string cudnn_version() {
  return "";
}

Device gpu_device(int) {
  throw MissingBackend(
      "`device` gpu: this build has no CUDA; install the CUDA toolkit 13 and build again, or pass "
      "`device` cpu");
}

void synchronize(Device) {}
void reserve_library_workspaces(Device) {}
void release_cached_memory(Device) {}
void release_library_workspaces(Device) {}

}  // namespace veil
