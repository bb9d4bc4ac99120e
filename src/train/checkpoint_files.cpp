#include "train/checkpoint_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/file_digest.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "base/shell_word.h"
#include "base/text.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "schema";
constexpr int64_t kOurSchema = 1;
constexpr int64_t kMostCount = int64_t{1} << 53;  // what JSON's numbers hold exactly everywhere

// -1 if the name is not exactly that of a checkpoint.
int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind("step_", 0) != 0) return -1;
  const int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
  return step >= 0 && name == checkpoint_name(step) ? step : -1;
}

std::string file_digest(const fs::path& path) {
  return digest_text(digest_of_file(path.string()));
}

// The state, if it is as it was written; nothing otherwise. Earlier versions wrote no digest.
std::optional<Json> sound_state(const fs::path& folder) {
  if (!fs::exists(folder / kStateFile)) return {};
  Json state = try_json<Json>(read_file((folder / kStateFile).string()));
  if (!state.is_object() || !state.contains("steps")) return {};
  if (state.contains(kStateCheck) && state[kStateCheck] != state_check(state)) return {};
  return state;
}

// From 2^63 on a number compares as negative.
bool is_count(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kMostCount;
}
bool is_positive_count(const Json& value) {
  return is_count(value) && value > 0;
}
bool is_position(const Json& value) {
  return value.is_object() && value.contains("epoch") && value.contains("step") &&
         is_count(value["epoch"]) && is_count(value["step"]);
}
bool is_object(const Json& value) {
  return value.is_object();
}
bool is_text(const Json& value) {
  return value.is_string();
}
bool is_norm(const Json& value) {
  return value.is_number() && value > 0;  // JSON has no infinity
}
// "rank_00000.safetensors": no other name, so that none leads out of the folder.
bool is_rank_file(const std::string& name) {
  constexpr size_t kMostName = 64;
  const std::string_view begin = "rank_", end = ".safetensors";
  if (name.size() > kMostName || name.size() <= begin.size() + end.size()) return false;
  return name.starts_with(begin) && name.ends_with(end) &&
         std::all_of(name.begin() + std::ssize(begin), name.end() - std::ssize(end),
                     [](unsigned char c) { return std::isdigit(c); });
}
bool are_digests(const Json& value) {
  if (!value.is_object()) return false;
  for (const auto& [name, digest] : value.items()) {
    if (!digest.is_string() || !is_rank_file(name)) return false;
  }
  return true;
}

struct Field {
  const char* name;
  bool (*holds)(const Json& value);
  const char* allowed;
  bool needed = false;
};
constexpr const char *kCount = "a whole number from 0 to 2^53", *kObject = "an object",
                     *kText = "a text";
// Every field that a resumed run reads (src/run, src/train). One that is read and not listed here
// would end in an exception of the JSON library.
constexpr Field kFields[] = {
    {"steps", is_count, kCount, /*needed=*/true},
    {"position", is_position, "an object with epoch and step, whole numbers from 0 to 2^53",
     /*needed=*/true},
    {"global_batch", is_positive_count, "a whole number from 1 to 2^53"},
    {"settings", is_object, kObject},
    {"frozen", is_text, kText},
    {"average_updates", is_count, kCount},
    {"privacy", is_object, kObject},
    {kStateDigests, are_digests, "an object of the ranks' files with their digests"},
};
constexpr Field kPrivacyFields[] = {
    {"segment", is_text, kText},
    {"clip_norm", is_norm, "a number above 0"},
    {"target", is_object, kObject},
};

// What is wrong with the first field that is not of its kind; "" if there is none.
template <size_t kCountOfFields>
std::string wrong_field(const Json& state, const Field (&fields)[kCountOfFields]) {
  for (const Field& field : fields) {
    const auto found = state.find(field.name);
    if (found == state.end() && field.needed) return fmt::format("{} is missing", field.name);
    if (found != state.end() && !field.holds(*found))
      return fmt::format("{} {}: allowed is {}", field.name, printable(found->dump(), 80),
                         field.allowed);
  }
  return "";
}

std::string wrong_state(const Json& state) {
  const Json schema = state.value(kSchema, Json(kOurSchema));
  if (schema != kOurSchema)
    return fmt::format("its schema is {}, this version of Veil reads {}",
                       printable(schema.dump(), 80), kOurSchema);
  if (const std::string wrong = wrong_field(state, kFields); !wrong.empty()) return wrong;
  if (!state.contains("privacy")) return "";
  const std::string wrong = wrong_field(state["privacy"], kPrivacyFields);
  return wrong.empty() ? "" : "privacy: " + wrong;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

void check_checkpoints_can_be_made(const std::string& run_folder) {
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  std::error_code ignored;
  if (fs::exists(parent, ignored) && !fs::is_directory(parent, ignored))
    user_error("'{}' is a file, and checkpoints go into a folder of this name: move it away",
               parent.string());
}

std::vector<fs::path> named_checkpoints(const std::string& run_folder) {
  std::vector<fs::path> found;
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  if (!fs::is_directory(parent)) return found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (step_of(entry.path()) >= 0 && fs::is_directory(entry.path()) && !fs::is_empty(entry.path()))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return step_of(a) < step_of(b); });
  return found;
}

std::vector<fs::path> whole_checkpoints(const std::string& run_folder) {
  std::vector<fs::path> found = named_checkpoints(run_folder);
  std::erase_if(found, [](const fs::path& folder) { return !fs::exists(folder / kStateFile); });
  return found;
}

std::optional<std::string> newest_checkpoint(const std::string& run_folder) {
  const std::vector<fs::path> found = named_checkpoints(run_folder);
  if (found.empty()) return std::nullopt;
  return found.back().string();
}

std::string state_check(Json state) {
  state.erase(kStateCheck);
  return digest_text(sha256(state.dump()));
}

Json checkpoint_state(const std::string& folder) {
  const auto state = sound_state(folder);
  const std::string file = join_path(folder, kStateFile);
  if (!state) damaged_checkpoint(folder, file);
  if (const std::string wrong = wrong_state(*state); !wrong.empty())
    user_error("{}: {}", file, wrong);
  return *state;
}

std::string checkpoint_digest(const std::string& folder) {
  const Json state = checkpoint_state(folder);
  if (!state.contains(kStateDigests)) return digest_text(digest_of_files(folder));
  return file_digest(fs::path(folder) / kStateFile);  // as it is written, to the last space
}

std::string damaged_file(const std::string& folder, const Json& state, int rank, int world) {
  int number = 0;
  const Json digests = state.value(kStateDigests, Json::object());
  for (const auto& [name, digest] : digests.items()) {
    if (number++ % world != rank) continue;
    const fs::path path = fs::path(folder) / name;
    if (!fs::exists(path) || digest != file_digest(path)) return path.string();
  }
  return "";
}

// Continuing from an older checkpoint is as safe as continuing after a crash: the journal knows
// which steps were begun (privacy/journal.h), and replays them or counts them in addition. That is
// a person's decision all the same, for a bad disk may have more to tell.
void damaged_checkpoint(const std::string& folder, const std::string& file) {
  const fs::path named(folder), run = named.parent_path().parent_path();
  const std::string move =
      fmt::format("mv {} {}", shell_word(named.string()),
                  shell_word((run / ("damaged_" + named.filename().string())).string()));
  std::string way_out = "no other whole checkpoint is there";
  std::vector<fs::path> others = whole_checkpoints(run.string());
  for (; !others.empty(); others.pop_back()) {
    if (fs::equivalent(others.back(), named)) continue;
    const auto state = sound_state(others.back());
    if (!state || !wrong_state(*state).empty() ||
        !damaged_file(others.back().string(), *state, 0, 1).empty())
      continue;
    way_out = fmt::format("{} is whole: to continue from it, run `{}` and resume again",
                          others.back().filename().string(), move);
    break;
  }
  if (!fs::exists(file)) user_error("{}: missing, and the checkpoint needs it; {}", file, way_out);
  user_error("{}: damaged, its bytes are not those that Veil wrote; {}", file, way_out);
}

}  // namespace veil
