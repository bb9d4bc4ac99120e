// Checkpoints as files: which ones a run's folder has, their state.json, and whether their bytes are
// still those that were written. No tensor is needed. What they hold: train/checkpoint.h.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace veil {

inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kStateDigests = "sha256";  // in it: of the other files, by name
inline constexpr const char* kStateCheck = "check";     // in it: of everything else in the state

// "step_00000120"
std::string checkpoint_name(int64_t step);

// UserError if something else has the name of the checkpoints' folder. Makes nothing.
void check_checkpoints_can_be_made(const std::string& run_folder);

// All that were made whole and have got their names, whatever has happened to them since; oldest
// first.
std::vector<std::filesystem::path> named_checkpoints(const std::string& run_folder);
// Those of them that have a state.
std::vector<std::filesystem::path> whole_checkpoints(const std::string& run_folder);
// The newest checkpoint's folder; nothing if there is none. What a killed save left is not one; one
// that was damaged since is, so that reading it tells.
std::optional<std::string> newest_checkpoint(const std::string& run_folder);

// state.json alone. UserError in one line, which names the file, if it is not as it was written, is
// of another version, or if a field that a resumed run reads is not of its kind. Two fields have
// readers of their own that say so: "base" (privacy/statement.h) and "events" of "privacy"
// (privacy/ledger.h).
nlohmann::ordered_json checkpoint_state(const std::string& folder);
// The digest of a state, to be put into it.
std::string state_check(nlohmann::ordered_json state);
// Of a checkpoint: of its state, which holds the SHA-256 of every other file, so that nothing is
// hashed twice. What load_checkpoint has accepted is then as it was when this was computed.
std::string checkpoint_digest(const std::string& folder);

// The first file that is not as it was written, of every `world`-th from the `rank`-th on; "" if
// there is none. `state` is what checkpoint_state has answered.
std::string damaged_file(const std::string& folder, const nlohmann::ordered_json& state, int rank,
                         int world);
// The UserError that names the file, and the newest checkpoint that is whole.
[[noreturn]] void damaged_checkpoint(const std::string& folder, const std::string& file);

}  // namespace veil
