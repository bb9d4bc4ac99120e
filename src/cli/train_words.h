// The words of `veil train` as the configuration that they mean: for the command itself, and for
// commands that look at such a run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/train_options.h"
#include "comm/launch.h"
#include "run/config.h"

namespace veil {

// Adds the options of `veil train` to `options`, parses the call's words and completes `command`
// with the stored settings of a resumed run and the defaults. False if that was all the call
// requested.
bool parse_train(const CommandCall& call, const RankInfo& info, Options& options,
                 TrainCommand& command);

struct TrainWords {
  RunConfig config;  // as train() would get it
  nlohmann::json settings;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
};
// Nothing if --help was among them and is answered. UserError as `veil train`'s.
std::optional<TrainWords> read_train_words(const std::vector<std::string>& words,
                                           const RankInfo& info);

}  // namespace veil
