// What a run takes from the machine, compared with what is there before the run starts: host memory
// and room on disk.
#pragma once

#include <string>

#include "estimate/estimator.h"
#include "run/config.h"

namespace veil {

// An operating system promises more memory than it has, and ends the process that takes it at its
// word. Compares the estimated peak of a step on a CPU, for all ranks of this host, with the memory
// that is available. "" if it fits, or if placement.ignore_memory says not to look.
std::string beyond_host_memory_text(const RunConfig& config, const Schedule& schedule,
                                    int local_world);

// "out of memory: <reason>; try A, or B": what a person gets.
std::string out_of_memory_text(const RunConfig& config, int world, bool on_gpu,
                               const std::string& reason);

// Files that will be written into a folder that may not exist yet.
struct PlannedFiles {
  std::string folder;
  int64_t bytes = 0;
  std::string what;  // "2 checkpoints"
};
// UserError if a file system has less room than all that is planned for it.
void check_disk_space(const std::vector<PlannedFiles>& planned);
// Of a training run with so many parameters: its checkpoints in `folder`, and its export.
std::vector<PlannedFiles> planned_files(const RunConfig& config, const std::string& folder,
                                        int64_t parameters, int64_t trained, int64_t steps);

}  // namespace veil
