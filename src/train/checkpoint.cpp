#include "train/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>

#include "base/error.h"
#include "base/file_digest.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUnfinished = ".unfinished";
constexpr const char* kStateFile = "state.json";

constexpr int kAverage = -2;

std::string checkpoint_name(int64_t step) {
  return fmt::format("step_{:08}", step);
}

std::string kind_name(int kind) {
  return kind == kAverage ? "average" : kind < 0 ? "params" : fmt::format("state{}", kind);
}

// -1 if the name is not exactly that of a checkpoint.
int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind("step_", 0) != 0) return -1;
  const int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
  return step >= 0 && name == checkpoint_name(step) ? step : -1;
}

// All that were made whole and have got their names, whatever has happened to them since; oldest
// first.
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

// What a killed save or removal left.
void remove_unfinished(const fs::path& parent) {
  if (!fs::is_directory(parent)) return;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.path().extension() == kUnfinished) found.push_back(entry.path());
  }
  for (const fs::path& folder : found) fs::remove_all(folder);
}

void remove_but_newest(const std::string& run_folder, int keep) {
  const std::vector<fs::path> found = whole_checkpoints(run_folder);
  for (size_t i = 0; i + static_cast<size_t>(keep) < found.size(); ++i) {
    // No longer a checkpoint from the first moment on, even if the removal is cut short.
    fs::rename(found[i], found[i].string() + kUnfinished);
  }
  remove_unfinished(fs::path(run_folder) / "checkpoints");
}

void barrier(Executor& executor) {
  if (Communicator* lane = executor.communicator()) lane->barrier();
}

constexpr const char* kDigests = "sha256";     // of the other files, by name
constexpr const char* kStateDigest = "check";  // of everything else in the state

constexpr const char* kSchema = "schema";
constexpr int64_t kOurSchema = 1;
constexpr int64_t kMostSteps = int64_t{1} << 53;  // what JSON's numbers hold exactly everywhere

std::string file_digest(const fs::path& path) {
  return digest_text(digest_of_file(path.string()));
}

std::string state_digest(Json state) {
  state.erase(kStateDigest);
  return digest_text(sha256(state.dump()));
}

// The state, if it is as it was written; nothing otherwise. Earlier versions wrote no digest.
std::optional<Json> sound_state(const fs::path& folder) {
  if (!fs::exists(folder / kStateFile)) return {};
  Json state = try_json<Json>(read_file((folder / kStateFile).string()));
  if (!state.is_object() || !state.contains("steps")) return {};
  if (state.contains(kStateDigest) && state[kStateDigest] != state_digest(state)) return {};
  return state;
}

// The first file that is not as it was written, of every `world`-th from the `rank`-th on; "" if
// there is none.
std::string damaged_file(const fs::path& folder, const Json& state, int rank, int world) {
  int number = 0;
  const Json digests = state.value(kDigests, Json::object());
  for (const auto& [name, digest] : digests.items()) {
    if (number++ % world != rank) continue;
    const fs::path path = folder / fs::path(name).filename();
    if (!fs::exists(path) || digest != file_digest(path)) return path.string();
  }
  return "";
}

// As a word of a shell's line.
std::string shell_word(const fs::path& path) {
  const std::string text = path.string();
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("/._-+", c);
  });
  if (plain && !text.empty()) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

// Continuing from an older checkpoint is as safe as continuing after a crash: the journal knows
// which steps were begun (privacy/journal.h), and replays them or counts them in addition. That is
// a person's decision all the same, for a bad disk may have more to tell.
[[noreturn]] void damaged_checkpoint(const fs::path& folder, const std::string& file) {
  const fs::path run = folder.parent_path().parent_path();
  const std::string move = fmt::format("mv {} {}", shell_word(folder),
                                       shell_word(run / ("damaged_" + folder.filename().string())));
  std::string way_out = "no other whole checkpoint is there";
  std::vector<fs::path> others = whole_checkpoints(run.string());
  for (; !others.empty(); others.pop_back()) {
    if (fs::equivalent(others.back(), folder)) continue;
    const auto state = sound_state(others.back());
    if (!state || !damaged_file(others.back(), *state, 0, 1).empty()) continue;
    way_out = fmt::format("{} is whole: to continue from it, run `{}` and resume again",
                          others.back().filename().string(), move);
    break;
  }
  if (!fs::exists(file)) user_error("{}: missing, and the checkpoint needs it; {}", file, way_out);
  user_error("{}: damaged, its bytes are not those that Veil wrote; {}", file, way_out);
}

// All ranks' pieces, found by model-wide index.
class Pieces {
 public:
  explicit Pieces(const std::string& folder) : folder_(folder) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) files_.emplace_back(path.string());
    for (const auto& weights : files_) {
      for (const std::string& name : weights.names()) {
        const size_t at = name.find('@');
        if (at == std::string::npos) continue;
        const int64_t first = std::strtoll(name.c_str() + at + 1, nullptr, 10);
        if (first < 0) continue;
        pieces_[name.substr(0, at)][first] = {&weights, weights.find(name)};
      }
    }
  }

  void read(int kind, int64_t first, const Tensor& out) const {
    const auto list = pieces_.find(kind_name(kind));
    const Tensor host =
        out.is_cuda() ? empty_tensor(out.sizes(), out.scalar_type(), cpu_device()) : out;
    for (int64_t done = 0; done < out.numel();) {
      const int64_t want = first + done;
      if (list == pieces_.end()) missing(kind, want);
      auto next = list->second.upper_bound(want);
      if (next == list->second.begin()) missing(kind, want);
      const auto& [begin, piece] = *std::prev(next);
      const int64_t inside = want - begin,
                    count = std::min(piece.tensor->elements - inside, out.numel() - done);
      if (count <= 0) missing(kind, want);
      Tensor place = host.narrow(0, done, count);
      read_weight(*piece.weights, *piece.tensor, inside, place);
      done += count;
    }
    if (out.is_cuda()) out.copy_(host);
  }

 private:
  struct Piece {
    const Weights* weights;
    const StoredTensor* tensor;
  };
  [[noreturn]] void missing(int kind, int64_t index) const {
    user_error("{}: {} has no element {}: it is a checkpoint of another model or optimizer",
               folder_, kind_name(kind), index);
  }
  std::string folder_;
  std::vector<Weights> files_;
  std::map<std::string, std::map<int64_t, Piece>> pieces_;  // by kind, by first index
};

}  // namespace

void save_checkpoint(const std::string& run_folder, Executor& executor, Json state, int keep,
                     const WeightAverage* average,
                     const std::function<void(const std::string&)>& before_whole) {
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  const fs::path whole = parent / checkpoint_name(executor.steps());
  const fs::path unfinished = whole.string() + kUnfinished;
  Communicator* lane = executor.communicator();
  const int rank = lane ? lane->rank() : 0;
  if (rank == 0) {
    remove_unfinished(parent);
    fs::create_directories(unfinished);
  }
  barrier(executor);
  std::vector<TensorSource> sources;
  for (const Executor::StatePiece& piece : executor.state()) {
    auto add = [&](int kind, const Tensor& values) {
      sources.push_back(tensor_source(fmt::format("{}@{}", kind_name(kind), piece.first), values,
                                      stored_type(values.scalar_type())));
    };
    add(-1, piece.params);
    for (size_t s = 0; s < piece.optimizer.size(); ++s)
      add(static_cast<int>(s), piece.optimizer[s]);
  }
  if (average) {
    state["average_updates"] = average->updates();
    for (const WeightAverage::Piece& piece : average->pieces()) {
      sources.push_back(tensor_source(fmt::format("{}@{}", kind_name(kAverage), piece.first),
                                      piece.average, stored_type(piece.average.scalar_type())));
    }
  }
  // Each rank hashes its own file, and rank 0 puts the digests into the state.
  const fs::path mine = unfinished / fmt::format("rank_{:05}.safetensors", rank);
  const std::string written = digest_text(write_safetensors(mine.string(), sources));
  write_file_atomically(fs::path(mine).replace_extension(".sha256").string(), written);
  barrier(executor);
  if (rank == 0) {
    std::vector<fs::path> made;
    for (const auto& entry : fs::directory_iterator(unfinished)) {
      if (entry.path().extension() == ".sha256") made.push_back(entry.path());
    }
    std::sort(made.begin(), made.end());
    state[kDigests] = Json::object();
    for (const fs::path& digest : made) {
      state[kDigests][digest.stem().string() + ".safetensors"] = read_file(digest.string());
      fs::remove(digest);
    }
    state[kStateDigest] = state_digest(state);
    write_file_atomically((unfinished / kStateFile).string(), state.dump(1), /*owner_only=*/true);
    if (before_whole) before_whole(unfinished.string());
    fs::remove_all(whole);
    fs::rename(unfinished, whole);
    // The new one is on disk before an older one goes.
    sync_folder(parent.string());
    remove_but_newest(run_folder, keep);
  }
  barrier(executor);
}

void remove_old_checkpoints(const std::string& run_folder, Executor& executor, int keep) {
  barrier(executor);  // no rank has found the newest one damaged
  const Communicator* const lane = executor.communicator();
  if (!lane || lane->rank() == 0) remove_but_newest(run_folder, keep);
}

void check_checkpoints_can_be_made(const std::string& run_folder) {
  const fs::path parent = fs::path(run_folder) / "checkpoints";
  std::error_code ignored;
  if (fs::exists(parent, ignored) && !fs::is_directory(parent, ignored))
    user_error("'{}' is a file, and checkpoints go into a folder of this name: move it away",
               parent.string());
}

std::optional<std::string> newest_checkpoint(const std::string& run_folder) {
  const std::vector<fs::path> found = named_checkpoints(run_folder);
  if (found.empty()) return std::nullopt;
  return found.back().string();
}

Json checkpoint_state(const std::string& folder) {
  const auto state = sound_state(folder);
  const std::string file = join_path(folder, kStateFile);
  if (!state) damaged_checkpoint(folder, file);
  const Json schema = state->value(kSchema, Json(kOurSchema));
  if (schema != kOurSchema)
    user_error("{}: its schema is {}, this version of Veil reads {}", file, schema.dump(),
               kOurSchema);
  const Json& steps = (*state)["steps"];
  if (!steps.is_number_integer() || steps < 0 || steps > kMostSteps)
    user_error("{}: steps {}: allowed is a whole number from 0 to {}", file, steps.dump(),
               kMostSteps);
  return *state;
}

std::string checkpoint_digest(const std::string& folder) {
  const Json state = checkpoint_state(folder);
  if (!state.contains(kDigests)) return digest_text(digest_of_files(folder));
  return file_digest(fs::path(folder) / kStateFile);  // as it is written, to the last space
}

Json load_checkpoint(const std::string& folder, Executor& executor) {
  const Json state = checkpoint_state(folder);
  const Communicator* const lane = executor.communicator();
  const int rank = lane ? lane->rank() : 0, world = lane ? lane->size() : 1;
  // Other threads hash the files while this one copies what they hold. Nothing of it is used before
  // they have ended.
  auto hashed =
      std::async(std::launch::async, [&] { return damaged_file(folder, state, rank, world); });
  try {
    const Pieces pieces(folder);
    executor.restore(
        state.value("steps", int64_t{0}),
        [&](int kind, int64_t first, const Tensor& out) { pieces.read(kind, first, out); });
  } catch (...) {
    // A damaged file may be no safetensors any more; it need not be one that this rank hashes.
    hashed.wait();
    const std::string damaged = damaged_file(folder, state, 0, 1);
    if (!damaged.empty()) damaged_checkpoint(folder, damaged);
    throw;
  }
  const std::string damaged = hashed.get();
  if (!damaged.empty()) damaged_checkpoint(folder, damaged);
  return state;
}

void load_average(const std::string& folder, WeightAverage& average) {
  const Json state = checkpoint_state(folder);
  if (!state.contains("average_updates"))
    user_error("{}: the checkpoint holds no average of the weights", folder);
  const Json& updates = state["average_updates"];
  if (!updates.is_number_integer() || updates.get<int64_t>() < 0)
    user_error("{}: average_updates is not a number of steps", folder);
  const Pieces pieces(folder);
  average.restore(updates.get<int64_t>(),
                  [&](int64_t first, const Tensor& out) { pieces.read(kAverage, first, out); });
}

}  // namespace veil
