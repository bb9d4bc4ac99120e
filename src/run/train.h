// Training as one call: a configuration in, events while it runs, a result at the end.
//
//   RunConfig config = training_config("llama-tiny");
//   config.model.from_scratch = true;  // a preset has no weights
//   config.data.path = "texts";
//   config.privacy.epsilon = 3;
//   config.privacy.delta = 1e-5;
//   config.training.steps = 100;
//   TrainingEvents events;
//   events.on_step = [](const StepEvent& e) { use(e.line.privacy->epsilon); };
//   const TrainResult result = train(config, events);
//   const TrainedModel model = read_trained(config, result.folder);
//
// Nothing is printed. The run's folder gets checkpoints, metrics.jsonl, TensorBoard scalars and, of
// a private run, its ledger and secret. A run that was killed is continued by the same call with
// training.resume set to its folder, with the same bits if the configuration and the machine are
// the same.
#pragma once

#include <map>

#include "comm/launch.h"
#include "run/prepared_run.h"
#include "run/train_config.h"
#include "run/train_events.h"

namespace veil {

// This process's part of the run; the only part unless a launcher started several (then each joins
// the others by World in comm/launch.h first, and rank 0 names the folder for all). Install
// the memory tracker before (profile/memory.h) for peaks by category. UserError in one line if the
// configuration, the data or an earlier run in the folder do not allow it; then nothing is written.
TrainResult train(const RunConfig& config, const TrainingEvents& events = {},
                  const RankInfo& info = rank_info_from_environment());

// The newest checkpoint of a run's folder.
struct TrainedModel {
  int64_t steps = 0;
  nlohmann::json state;                      // of the run: settings and, of a private one, events
  std::map<std::string, Tensor> parameters;  // whole, on CPU, by name
};
// UserError if the folder has no checkpoint, or it is of another model.
TrainedModel read_trained(const RunConfig& config, const std::string& folder);

}  // namespace veil
