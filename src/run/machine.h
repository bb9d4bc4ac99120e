// The machine and the build that an experiment ran on, as records keep them and `veil doctor` shows
// them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace veil {

struct Machine {
  std::string host;
  std::string cpu_model;
  int cpu_cores = 0;  // that this process may use
  int64_t memory_bytes = 0;
  std::vector<GpuInfo> gpus;
  std::string cuda_runtime, cudnn, nccl, mpi;  // versions; "" if the build lacks them
};
Machine this_machine();

// Dense TFLOP/s of products in this type at best, from the vendor's data sheet: the denominator of
// MFU. 0 if the GPU is not in the table.
double peak_tflops_of(const std::string& gpu_name, DType compute);

nlohmann::json machine_json(const Machine& machine);
nlohmann::json build_json();

}  // namespace veil
