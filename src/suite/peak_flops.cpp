#include "suite/peak_flops.h"

namespace veil {

double peak_tflops_of(const std::string& gpu_name, DType compute) {
  struct Peak {
    const char* name;
    double half, single;  // dense, TFLOP/s; single without TF32
  };
  // More special names first: "H100 PCIe" is not an "H100".
  static constexpr Peak kPeaks[] = {{"H200", 989.4, 66.9}, {"H100 PCIe", 756, 51}, {"H100 NVL", 835, 60},
                                    {"H100", 989.4, 66.9}, {"H20", 148, 44},       {"A100", 312, 19.5},
                                    {"L40S", 362, 91.6},   {"A10", 125, 31.2}};
  for (const Peak& peak : kPeaks) {
    if (gpu_name.find(peak.name) == std::string::npos) continue;
    return dtype_bytes(compute) == 2 ? peak.half : compute == at::kFloat ? peak.single : 0;
  }
  return 0;
}

}  // namespace veil
