// Measures one experiment on the ranks that this process belongs to.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "comm/launch.h"
#include "suite/experiment.h"

namespace veil {

struct RunPlace {
  RankInfo info;                                                // the real ranks
  std::string trace_folder;                                     // "" writes no traces
  std::function<void(const nlohmann::ordered_json&)> on_stage;  // a stage's memory line, as it happens
  std::function<void(const std::string&, int64_t done, int64_t total)> on_progress;  // steps; rank 0
};

// The world that the experiment sees: simulated, or the real one.
int experiment_world(const ExperimentOptions& options, const RankInfo& info);
// UserError where the ranks do not fit the machine's GPUs.
Device choose_device(const ExperimentOptions& options, const RankInfo& info);
// Tells LibTorch which products may round to TF32 and whether a step must give the same bits each time. Before the first product of the process.
void set_arithmetic(const ExperimentOptions& options);

// A communicator for each lane; none in a world of one.
Ranks make_ranks(const ExperimentOptions& options, const RankInfo& info, Device device);

// The record of design section 9; every rank gets one, rank 0's is the one to keep. Out of memory is an outcome, not an exception.
nlohmann::ordered_json run_experiment(const ExperimentOptions& options, const RunPlace& place);

}  // namespace veil
