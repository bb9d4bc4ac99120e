// The seam to LibTorch's devices. All CUDA code behind it is in *_cuda.cpp; a build without
// CUDA uses *_no_cuda.cpp instead.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace veil {

using Tensor = at::Tensor;
using Device = c10::Device;
using DType = c10::ScalarType;

struct GpuInfo {
  int index = 0;
  std::string name;
  int64_t memory_bytes = 0;
  int capability_major = 0, capability_minor = 0;
  int multiprocessors = 0;
};

// Whether this build has CUDA code at all, and whether a GPU answers. Neither throws.
bool built_with_cuda();
int gpu_count();
std::vector<GpuInfo> gpus();
int gpu_capability(Device device);   // 90 for compute capability 9.0; 0 for a CPU
std::string cuda_runtime_version();  // "13.0", or "" without CUDA
std::string cudnn_version();         // "9.19.0", or "" without CUDA

Device cpu_device();
// Makes `index` the calling thread's current GPU. Throws MissingBackend if there is none.
Device gpu_device(int index);

// Blocks the host until the device has finished everything issued to it.
void synchronize(Device device);

// Uninitialised tensor. `pinned` asks for page-locked host memory, which a build without CUDA gives
// as plain memory.
Tensor empty_tensor(c10::IntArrayRef shape, DType dtype, Device device, bool pinned = false);

// Makes the workspaces that cuBLAS keeps for the calling thread's current stream now, as
// Category::temporary: they would otherwise be booked under whatever the first product is for, and
// a capture would find them missing.
void reserve_library_workspaces(Device device);
// Gives memory that the caching allocator holds but nobody uses back to the device.
void release_cached_memory(Device device);
// Frees what LibTorch keeps for itself between calls (cuBLAS workspaces), so that counts of
// memory can end at zero.
void release_library_workspaces(Device device);

int64_t dtype_bytes(DType dtype);
// in which sums over values of this type are kept: fp64 for fp64, otherwise fp32
DType sum_dtype(DType dtype);
DType parse_dtype(const std::string& name);  // "fp32", "bf16", "fp64", "fp16"; UserError otherwise
std::string dtype_name(DType dtype);

}  // namespace veil
