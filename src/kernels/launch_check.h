// Turns a failed kernel launch into an exception. For .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace veil::launch {

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("[") + kernel + "] " + cudaGetErrorString(error));
}

}  // namespace veil::launch
