// What a training run will be, known before any of its ranks starts.
#pragma once

#include <string>

#include "comm/launch.h"
#include "run/config.h"
#include "tensor/device.h"

namespace veil {

// The settled configuration, the device, and the folder, which is named and not made.
struct PreparedRun {
  RunConfig config;
  Device device = cpu_device();
  std::string folder;
};
// UserError for all that can be wrong before data is read.
PreparedRun prepare_training(const RunConfig& config, const RankInfo& info);

}  // namespace veil
