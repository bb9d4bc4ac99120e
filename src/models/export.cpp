#include "models/export.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

// A folder that vanishes unless it is put into its place.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& place)
      : path_(fmt::format("{}.{}.tmp", place.string(), getpid())),
        replaced_(path_.string() + ".replaced") {
    std::error_code error;
    fs::remove_all(path_, error);
    fs::create_directories(path_, error);
    if (error) user_error("cannot make folder '{}': {}", path_.string(), error.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    fs::remove_all(replaced_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string inside(const std::string& name) const { return (path_ / name).string(); }

  void rename_to(const fs::path& place) {
    std::error_code error;
    const bool there = fs::exists(place, error);
    if (there) fs::rename(place, replaced_, error);
    if (!error) fs::rename(path_, place, error);
    if (!error) return;
    std::error_code ignored;
    if (there && !fs::exists(place, ignored)) fs::rename(replaced_, place, ignored);
    user_error("cannot put folder '{}' into its place: {}", place.string(), error.message());
  }

 private:
  fs::path path_, replaced_;
};

std::vector<std::vector<TensorSource>> cut(const std::vector<TensorSource>& tensors,
                                           int64_t limit) {
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t filled = 0;
  for (const TensorSource& tensor : tensors) {
    const int64_t bytes = source_bytes(tensor);
    if (!shards.back().empty() && bytes > limit - filled) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += bytes;
  }
  return shards;
}

void write_weights(const TemporaryFolder& folder, const std::vector<TensorSource>& tensors,
                   int64_t limit) {
  const auto shards = cut(tensors, limit);
  if (shards.size() == 1) return write_safetensors(folder.inside("model.safetensors"), shards[0]);
  nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(folder.inside(name), shards[i]);
    for (const TensorSource& tensor : shards[i]) {
      VEIL_CHECK(!index["weight_map"].contains(tensor.name), "tensor {} is written twice",
                 tensor.name);
      index["weight_map"][tensor.name] = name;
      total += source_bytes(tensor);
    }
  }
  index["metadata"]["total_size"] = total;
  write_file_atomically(folder.inside("model.safetensors.index.json"), index.dump(2) + "\n");
}

}  // namespace

void export_model(const std::string& folder,
                  const std::vector<std::pair<std::string, std::string>>& files,
                  const std::vector<TensorSource>& tensors, const ExportOptions& options) {
  VEIL_CHECK(options.shard_bytes > 0, "files of {} bytes", options.shard_bytes);
  std::error_code error;
  fs::path place = fs::absolute(folder, error).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // "folder/"
  if (fs::exists(place, error) && !fs::is_directory(place, error))
    user_error("'{}' is not a folder", folder);
  if (!options.replace && fs::exists(place, error) && !fs::is_empty(place, error)) {
    user_error("folder '{}' is there and not empty: allowed is a new or an empty one", folder);
  }
  check_folder_can_be_made(place.string());
  TemporaryFolder whole(place);
  write_weights(whole, tensors, options.shard_bytes);
  for (const auto& [name, content] : files) write_file_atomically(whole.inside(name), content);
  whole.rename_to(place);
}

}  // namespace veil
