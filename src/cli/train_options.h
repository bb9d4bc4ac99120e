// The options of `veil train` and the values that they set.
#pragma once

#include <string>

#include "cli/options.h"
#include "comm/launch.h"
#include "run/config.h"

namespace veil {

struct TrainCommand {
  RunConfig config;
  int64_t log_every = 1;
  std::string profile;  // as it was given
  bool json = false, dry_run = false;
  bool bf16 = false;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
};
// The options are bound to `command`, which must live as long as they do.
void add_train_options(Options& options, TrainCommand& command);

}  // namespace veil
