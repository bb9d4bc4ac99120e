// The words of `veil train` for commands that look at such a run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "run/config.h"

namespace veil {

struct TrainWords {
  RunConfig config;  // as train() would get it
  nlohmann::json settings;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
};
// Nothing if --help was among them and is answered. UserError as `veil train`'s.
std::optional<TrainWords> read_train_words(const std::vector<std::string>& words,
                                           const RankInfo& info);

}  // namespace veil
