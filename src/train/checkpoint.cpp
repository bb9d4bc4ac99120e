#include "train/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>

#include "base/error.h"
#include "base/file_digest.h"
#include "base/files.h"
#include "base/folders.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUnfinished = ".unfinished";

constexpr int kAverage = -2;

std::string kind_name(int kind) {
  return kind == kAverage ? "average" : kind < 0 ? "params" : fmt::format("state{}", kind);
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
    state[kStateDigests] = Json::object();
    for (const fs::path& digest : made) {
      state[kStateDigests][digest.stem().string() + ".safetensors"] = read_file(digest.string());
      fs::remove(digest);
    }
    state[kStateCheck] = state_check(state);
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
  const Pieces pieces(folder);
  average.restore(state["average_updates"].get<int64_t>(),
                  [&](int64_t first, const Tensor& out) { pieces.read(kAverage, first, out); });
}

}  // namespace veil
