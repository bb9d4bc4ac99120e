// A training run's state on disk: every rank's part of the parameters and the optimizer, and the
// trainer's own numbers.
//
//   <run>/checkpoints/step_00000120/rank_00000.safetensors
//       tensors "params@FIRST", "state0@FIRST", ..., and "average@FIRST" if there is one; FIRST
//       is the model-wide index of the first element
//   <run>/checkpoints/step_00000120/state.json
//       steps, data position, settings, and the other files' SHA-256; written last
//
// The folder is made under another name and renamed when it is whole. Indices do not depend on the
// world, so a run may be resumed with other ranks or another strategy.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/executor.h"
#include "train/checkpoint_files.h"
#include "train/weight_average.h"

namespace veil {

// Every rank calls it. `state` is rank 0's. Older checkpoints beyond the newest `keep` are removed
// afterwards. Rank 0 calls `before_whole` with the folder that holds all of its files and is about
// to get the checkpoint's name.
void save_checkpoint(const std::string& run_folder, Executor& executor,
                     nlohmann::ordered_json state, int keep, const WeightAverage* average = nullptr,
                     const std::function<void(const std::string& folder)>& before_whole = {});

// All but the newest `keep`, and what a killed save left: it may have been killed before it removed
// them. Every rank calls it, after load_checkpoint has found the newest one sound.
void remove_old_checkpoints(const std::string& run_folder, Executor& executor, int keep);

// Fills the executor and answers the state that was saved. Every rank calls it, with the same
// folder. UserError if a file is not as it was written, which names it and the newest checkpoint
// that is whole, and if the checkpoint is of another model; the executor is of no use then.
nlohmann::ordered_json load_checkpoint(const std::string& folder, Executor& executor);
// The average of the weights that was saved with them. UserError if there is none.
void load_average(const std::string& folder, WeightAverage& average);

}  // namespace veil
