#include "suite/remedies.h"

#include "base/error.h"

namespace veil {

std::vector<std::string> remedies(const ExperimentOptions& options, int world, bool on_gpu) {
  std::vector<std::string> list;
  const int64_t half = options.batch_size / 2;
  if (options.batch_size > 1) list.push_back(fmt::format("--batch-size {}", half));
  if (options.accumulation == 1 && options.batch_size > 1)
    list.push_back(fmt::format("--batch-size {} --accumulation 2: the same logical batch", half));
  if (options.strategy != Strategy::zero3 && world > 1) list.push_back("--strategy zero3");
  if (options.checkpointing == Checkpointing::none) list.push_back("--checkpointing full");
  if (on_gpu && !options.cpu_offload) list.push_back("--cpu-offload");
  return list;
}

}  // namespace veil
