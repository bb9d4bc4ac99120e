// The export of a training run: the model that it writes at its end, and who may replace it.
#pragma once

#include <optional>
#include <string>

#include "engine/executor.h"
#include "run/config.h"
#include "run/private_run.h"
#include "run/train_task.h"
#include "train/weight_average.h"

namespace veil {

// In the folder of a run that has exported: a random name under which it did, and the folder's own
// path. By it the run, resumed, may replace its own export, for a job that is requeued has the same
// command each time; a copy of the folder may not.
inline constexpr const char* kExportOwner = ".veil_export_owner";
// "" for a run that has not exported yet.
std::string export_owner(const std::string& run_folder);

// A run that has ended, as its export sees it.
struct FinishedRun {
  const RunConfig& config;
  const std::string& folder;
  const TrainTask& task;
  const Model& model;
  const RunOrigin& origin;
  Executor& executor;
  WeightAverage* average;                       // if one is kept, it is the model
  const std::optional<PrivateResult>& privacy;  // rank 0's of a private run
};
// Every rank must call it: one `writes` while the others take part in gathering, parameter by
// parameter in one order.
void export_trained(const FinishedRun& run, bool writes);

}  // namespace veil
