#include "models/export.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file_digest.h"
#include "base/files.h"
#include "base/folders.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/stale_files.h"
#include "base/text.h"
#include "models/model_files.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

// A new folder next to `place` that vanishes unless it is put into its place. With an owner, of whom
// one process exports at a time, it is named by it, and what a killed process left of it is removed.
class TemporaryFolder {
 public:
  TemporaryFolder(const fs::path& place, const std::string& owner) {
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    const std::string name = owner.empty() ? std::to_string(getpid()) : owner;
    if (!owner.empty()) {
      path_ = fmt::format("{}.{}.0.tmp", place.string(), name);
      if (!error) fs::remove_all(path_, error);
    }
    bool made = false;
    for (int i = 0; i < 1000 && !made && !error; ++i) {
      path_ = fmt::format("{}.{}.{}.tmp", place.string(), name, i);
      made = fs::create_directory(path_, error);  // false if something has that name
    }
    if (!made) user_error("cannot make folder '{}': {}", path_.string(), error.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string inside(const std::string& name) const { return (path_ / name).string(); }
  // Every file by name, with its size.
  std::map<std::string, uintmax_t> files() const {
    std::map<std::string, uintmax_t> found;
    for (const auto& entry : fs::directory_iterator(path_))
      found[entry.path().filename().string()] = entry.file_size();
    return found;
  }

  // `place` does not exist, or is an empty folder.
  void rename_to(const fs::path& place) {
    std::error_code error;
    fs::rename(path_, place, error);
    if (error)
      user_error("cannot put folder '{}' into its place: {}", place.string(), error.message());
    sync_folder(place.parent_path().string());
  }
  void move_into(const fs::path& place, const std::string& name) {
    std::error_code error;
    fs::rename(path_ / name, place / name, error);
    if (error) user_error("cannot write '{}': {}", (place / name).string(), error.message());
  }

 private:
  fs::path path_;
};

struct EarlierExport {
  std::map<std::string, uintmax_t> files;  // with their sizes
  std::string owner;
};

// What the manifest says; nothing if the folder is no export.
std::optional<EarlierExport> earlier_export(const fs::path& folder) {
  std::error_code error;
  const fs::path path = folder / kExportManifest;
  if (!fs::is_regular_file(path, error)) return {};
  const auto json = try_json(read_file(path.string()));
  if (!json.is_object() || json.value(kWrittenBy, "") != kWriter || !json.contains("files") ||
      !json["files"].is_object())
    return {};
  EarlierExport earlier;
  if (json.contains("owner") && json["owner"].is_string())
    earlier.owner = json["owner"].get<std::string>();
  for (const auto& [name, size] : json["files"].items()) {
    if (!size.is_number_unsigned() || fs::path(name).filename() != name) return {};
    earlier.files[name] = size.get<uintmax_t>();
  }
  return earlier;
}

// In a manifest written before files are replaced: what a killed process left may have any size.
constexpr uintmax_t kAnySize = 0;

constexpr const char* kFileDigests = "sha256";
constexpr const char* kPrivacyStatement = "privacy.json";

std::string manifest_text(const std::map<std::string, uintmax_t>& files, const std::string& owner,
                          const std::map<std::string, std::string>& digests = {}) {
  nlohmann::ordered_json manifest = {{kWrittenBy, kWriter}};
  if (!owner.empty()) manifest["owner"] = owner;
  manifest["files"] = files;
  if (!digests.empty()) manifest[kFileDigests] = digests;
  return manifest.dump(2) + "\n";
}

// Whether exports write files of this name.
bool is_export_name(const std::string& name) {
  static const std::set<std::string> names = {
      "config.json",         kPrivacyStatement,
      "adapter_config.json", "adapter_model.safetensors",
      "model.safetensors",   "model.safetensors.index.json"};
  return names.count(name) > 0 || is_companion_file(name) ||
         (name.rfind("model-", 0) == 0 && name.ends_with(".safetensors"));
}

// Replaces the files of the earlier export one by one and removes those that the new one does not
// have. The manifest lists both until the end, so that a process that is killed leaves an export.
void replace_export(TemporaryFolder& whole, const fs::path& place, const std::string& owner) {
  const auto before = earlier_export(place).value_or(EarlierExport{}).files;
  const auto now = whole.files();
  std::map<std::string, uintmax_t> both;
  for (const auto& [name, size] : now) {
    const bool foreign = name != kExportManifest && before.count(name) == 0;
    if (foreign && fs::exists(place / name))
      user_error("'{}' exists and is not a file that Veil exported: move it",
                 (place / name).string());
  }
  for (const auto& list : {before, now}) {
    for (const auto& [name, size] : list) both[name] = kAnySize;
  }
  both.erase(kExportManifest);
  if (!owner.empty())
    remove_stale_temporaries((place / kExportManifest).string(), OtherWriters::none);
  write_file_atomically((place / kExportManifest).string(), manifest_text(both, owner));
  for (const auto& [name, size] : now) {
    if (name != kExportManifest) whole.move_into(place, name);
  }
  std::error_code ignored;
  for (const auto& [name, size] : before) {
    if (now.count(name) == 0) fs::remove(place / name, ignored);
  }
  whole.move_into(place, kExportManifest);
  sync_folder(place.string());
}

fs::path place_of(const std::string& folder) {
  std::error_code error;
  const fs::path place = fs::absolute(folder, error).lexically_normal();
  return place.has_filename() ? place : place.parent_path();  // "folder/"
}

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

using FileDigests = std::map<std::string, std::string>;  // by name

// Answers the digests of the files with tensors.
FileDigests write_weights(const TemporaryFolder& folder, const std::vector<TensorSource>& tensors,
                          const std::string& file, int64_t limit) {
  FileDigests digests;
  const auto write = [&](const std::string& name, const std::vector<TensorSource>& shard) {
    digests[name] = digest_text(write_safetensors(folder.inside(name), shard));
  };
  const auto shards = cut(tensors, limit);
  if (shards.size() == 1) {
    write(file + ".safetensors", shards[0]);
    return digests;
  }
  nlohmann::ordered_json index = {{"metadata", {{"total_size", 0}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        fmt::format("{}-{:05}-of-{:05}.safetensors", file, i + 1, shards.size());
    write(name, shards[i]);
    for (const TensorSource& tensor : shards[i]) {
      VEIL_CHECK(!index["weight_map"].contains(tensor.name), "tensor {} is written twice",
                 tensor.name);
      index["weight_map"][tensor.name] = name;
      total += source_bytes(tensor);
    }
  }
  index["metadata"]["total_size"] = total;
  write_file_atomically(folder.inside(file + ".safetensors.index.json"), index.dump(2) + "\n");
  return digests;
}

}  // namespace

void export_model(const std::string& folder,
                  const std::vector<std::pair<std::string, std::string>>& files,
                  const std::vector<TensorSource>& tensors, const ExportOptions& options) {
  VEIL_CHECK(options.shard_bytes > 0, "files of {} bytes", options.shard_bytes);
  check_export_folder(folder, options);
  const fs::path place = place_of(folder);
  TemporaryFolder whole(place, options.owner);
  FileDigests digests = write_weights(whole, tensors, options.weights, options.shard_bytes);
  for (const auto& [name, content] : files) write_file_atomically(whole.inside(name), content);
  for (const auto& [name, size] : whole.files()) {
    if (!digests.contains(name)) digests[name] = digest_text(digest_of_file(whole.inside(name)));
  }
  write_file_atomically(whole.inside(kExportManifest),
                        manifest_text(whole.files(), options.owner, digests));
  std::error_code error;
  if (fs::exists(place, error) && !fs::is_empty(place, error)) {
    check_export_folder(folder, options);
    replace_export(whole, place, options.owner);
  } else {
    whole.rename_to(place);
  }
}

void check_exported_weights(const std::string& folder) {
  std::error_code error;
  const fs::path manifest = fs::path(folder) / kExportManifest;
  if (!earlier_export(folder)) return;
  const auto json = try_json(read_file(manifest.string()));
  const auto digests = json.value(kFileDigests, nlohmann::json::object());
  for (const auto& [name, digest] : digests.items()) {
    const fs::path path = fs::path(folder) / fs::path(name).filename();
    const bool checked = path.extension() == ".safetensors" || name == kPrivacyStatement;
    if (!checked || !fs::exists(path, error)) continue;
    if (digest == digest_text(digest_of_file(path.string()))) continue;
    user_error("{}: damaged, its bytes are not those that Veil exported; {}", path.string(),
               name == kPrivacyStatement
                   ? "restore it, or export the model again"
                   : fmt::format("export the model again, or remove {} if you changed it yourself",
                                 manifest.string()));
  }
}

void check_export_folder(const std::string& folder, const ExportOptions& options) {
  const fs::path place = place_of(folder);
  std::error_code error;
  check_folder_can_be_made(place.string());
  if (fs::exists(place, error) && !fs::is_directory(place, error))
    user_error("'{}' is not a folder", folder);
  if (!fs::exists(place, error) || fs::is_empty(place, error)) return;
  const auto earlier = earlier_export(place);
  if (!earlier)
    field_error("export",
                "{}: the folder is not empty and is no export of Veil; choose a new or an empty "
                "folder",
                folder);
  const bool own = !options.owner.empty() && earlier->owner == options.owner;
  if (!own && !options.overwrite)
    field_error("export",
                "{}: the folder holds an earlier export; choose another, or pass `overwrite` to "
                "replace it",
                folder);
  for (const auto& entry : fs::directory_iterator(place)) {
    const std::string name = entry.path().filename().string();
    if (name == kExportManifest || !is_export_name(name)) continue;
    const auto found = earlier->files.find(name);
    if (found == earlier->files.end() || !entry.is_regular_file(error) ||
        (found->second != kAnySize && entry.file_size(error) != found->second))
      field_error("export",
                  "{}: '{}' in it is not the file that Veil exported; move it, or choose another "
                  "folder",
                  folder, name);
  }
}

}  // namespace veil
