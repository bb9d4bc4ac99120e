#include "run/machine.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

#include "base/build_info.h"
#include "base/cpu_model.h"
#include "base/process.h"
#include "comm/communicator.h"

namespace veil {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.host = host_name();
  machine.cpu_model = cpu_model();
  machine.cpu_cores = usable_cores();
  machine.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  machine.gpus = gpus();
  machine.cuda_runtime = cuda_runtime_version();
  machine.cudnn = cudnn_version();
  machine.nccl = nccl_library_version();
  machine.mpi = mpi_library_version();
  return machine;
}

nlohmann::json machine_json(const Machine& machine) {
  nlohmann::json result = {{"host", machine.host},
                           {"cpu",
                            {{"model", machine.cpu_model},
                             {"cores", machine.cpu_cores},
                             {"memory_bytes", machine.memory_bytes}}},
                           {"gpus", nlohmann::json::array()},
                           {"cuda_runtime", machine.cuda_runtime},
                           {"cudnn", machine.cudnn},
                           {"nccl", machine.nccl},
                           {"mpi", machine.mpi}};
  for (const GpuInfo& gpu : machine.gpus) {
    result["gpus"].push_back(
        {{"index", gpu.index},
         {"name", gpu.name},
         {"memory_bytes", gpu.memory_bytes},
         {"compute_capability", fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor)},
         {"multiprocessors", gpu.multiprocessors}});
  }
  return result;
}

nlohmann::json build_json() {
  const BuildInfo& build = build_info();
  return {{"version", build.version},
          {"commit", build.commit},
          {"compiler", build.compiler},
          {"flags", build.flags},
          {"build_type", build.build_type},
          {"sanitized", build.sanitized},
          {"libtorch", build.torch_version},
          {"libtorch_folder", build.torch_folder},
          {"backends",
           {{"cuda", build.cuda},
            {"nccl", build.nccl},
            {"mpi", build.mpi},
            {"unicode", build.unicode},
            {"curl", build.curl}}}};
}

double peak_tflops_of(const std::string& gpu_name, DType compute) {
  struct Peak {
    const char* name;
    double half, single;  // dense, TFLOP/s; single without TF32
  };
  // More special names first: "H100 PCIe" is not an "H100".
  static constexpr Peak kPeaks[] = {
      {"H200", 989.4, 66.9}, {"H100 PCIe", 756, 51}, {"H100 NVL", 835, 60}, {"H100", 989.4, 66.9},
      {"H20", 148, 44},      {"A100", 312, 19.5},    {"L40S", 362, 91.6},   {"A10", 125, 31.2}};
  for (const Peak& peak : kPeaks) {
    if (gpu_name.find(peak.name) == std::string::npos) continue;
    return dtype_bytes(compute) == 2 ? peak.half : compute == at::kFloat ? peak.single : 0;
  }
  return 0;
}

}  // namespace veil
