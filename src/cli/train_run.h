// One rank's part of a training run: data in, executor, trainer, log, export.
#pragma once

#include "cli/train_options.h"
#include "comm/launch.h"

namespace veil {

// `folder` is the run's; rank 0 makes it once nothing can be wrong with the input any more. Answers the exit code: done, or failed where a signal stopped it.
int run_training(const TrainCommand& command, const Options& options, const RankInfo& info, const std::string& folder);

}  // namespace veil
