// The configuration of a training run: its usual values, which values are allowed, and which ones a
// resumed run must keep.
#pragma once

#include <nlohmann/json.hpp>

#include "comm/launch.h"
#include "run/config.h"

namespace veil {

// The usual configuration for training the named model: its optimizer and learning rate, nothing
// measured. Data, steps and privacy are the caller's to set.
RunConfig training_config(const std::string& model, const std::string& hub_cache = "");

// The file in a run's folder that has its settled settings by stored key.
inline constexpr const char* kRunSettings = "settings.json";
// Writes that file, with the SHA-256 of all else in it under kSettingsCheck.
void write_settings(const RunConfig& config, const std::string& run_folder);
inline constexpr const char* kSettingsCheck = "check";
// The settings of the run in the folder: of its newest checkpoint, or of the file if there is none;
// an empty object if there is neither. UserError if they are not as they were written.
nlohmann::json stored_settings(const std::string& run_folder);

// PrivacyConfig::max_batch as a number; 0 for "auto". UserError if it is neither.
int64_t maximum_of(const std::string& max_batch);

// Samples that a private run expects in a logical batch over all ranks: E.
double expected_batch(const RunConfig& config, int world);

// The configuration with everything filled in that follows from the rest, for a world of so many
// ranks: whether it is private, what a sample is, how a private logical batch is cut into
// micro-batches. UserError that names the field if it asks for what cannot be. Settling twice
// changes nothing.
RunConfig settled_for_training(RunConfig config, int world);

// A resumed run keeps what decides its steps: model, samples and how they are read, order, optimizer
// and the logical batch. UserError that names the field that differs from the newest checkpoint's; strategy, ranks,
// micro-batches, device and the like may change. A folder without a checkpoint allows everything,
// except that private and plain training do not mix in it. `config` is settled.
void check_resumed(const RunConfig& config, const std::string& run_folder, int world);
// A run may continue on other data: a line that says so, or "". The newest checkpoint says what it was.
std::string other_data_notice(const RunConfig& config, const std::string& run_folder);

}  // namespace veil
