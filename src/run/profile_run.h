// Measures one experiment on the ranks that this process belongs to.
#pragma once

#include <functional>

#include "comm/launch.h"
#include "engine/executor.h"
#include "record/record.h"
#include "run/config.h"

namespace veil {

struct RunPlace {
  RankInfo info;             // the real ranks
  std::string trace_folder;  // "" writes no traces
  // a stage's memory line, as it happens
  std::function<void(const RecordStage&)> on_stage;
  // steps; rank 0
  std::function<void(const std::string&, int64_t done, int64_t total)> on_progress;
  // the measured steps' row times, if rows are timed
  std::function<void(const Executor&, const std::vector<StepTime>&)> on_steps = {};
};

// Every rank gets a record, rank 0's is the one to keep. Out of memory is an outcome, not an
// exception.
Record run_experiment(const RunConfig& config, const RunPlace& place);

}  // namespace veil
