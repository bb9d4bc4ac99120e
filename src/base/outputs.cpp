#include "base/outputs.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Instead of a fingerprint: another program is writing the file for Veil.
constexpr const char* kBeingDrawn = "being drawn";
constexpr uintmax_t kLargestJson = uintmax_t{1} << 28;  // larger ones are not parsed

Json object_in(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) > kLargestJson || error)
    return {};
  const std::string text = read_file(path);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text[begin] != '{') return {};
  const Json parsed = try_json(text);
  return parsed.is_object() ? parsed : Json();
}

bool names_veil(const Json& object) {
  const auto begins = [&](const char* key, const std::string& word) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() &&
           found->get_ref<const std::string&>().rfind(word, 0) == 0;
  };
  return object.is_object() && (begins(kWrittenBy, kWriter) || begins("command", "veil "));
}

// FNV-1a, which tells an edited file from the one that was written; nobody attacks it.
std::string fingerprint(std::string_view content) {
  uint64_t hash = 14695981039346656037U;
  for (const char byte : content) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211U;
  return fmt::format("{}-{:016x}", content.size(), hash);
}

std::string manifest_of(const fs::path& file) {
  return join_path(file.parent_path().string(), kManifestFile);
}

// The files that the manifest lists, by name. Something else under its name lists nothing.
Json listed_in(const std::string& manifest) {
  const Json object = object_in(manifest);
  if (!names_veil(object) || !object.contains("files") || !object["files"].is_object())
    return Json::object();
  return object["files"];
}

void write_manifest(const std::string& manifest, const Json& files, bool owner_only = false) {
  const Json whole = {{kWrittenBy, kWriter}, {"files", files}};
  write_file_atomically(manifest, whole.dump(1) + "\n", owner_only);
}

bool is_owners_alone(const fs::path& file) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  return fs::exists(status) && (status.permissions() & fs::perms(0077)) == fs::perms::none;
}

bool is_listed(const fs::path& file) {
  const Json files = listed_in(manifest_of(file));
  const auto found = files.find(file.filename().string());
  if (found == files.end() || !found->is_array()) return false;
  if (std::find(found->begin(), found->end(), kBeingDrawn) != found->end()) return true;
  return std::find(found->begin(), found->end(), fingerprint(read_file(file.string()))) !=
         found->end();
}

// Lists `path` with these fingerprints, in addition to those that it has if `also`. A manifest that
// has a private file's fingerprint is its owner's alone: few figures can be guessed from it.
void list_in_manifest(const fs::path& path, const std::vector<std::string>& fingerprints, bool also,
                      bool owner_only) {
  const std::string manifest = manifest_of(path);
  std::error_code error;
  if (fs::exists(manifest, error) && !names_veil(object_in(manifest)))
    user_error("'{}' is not the list that Veil keeps there: move it, or choose another folder",
               manifest);
  Json files = listed_in(manifest);
  Json& entry = files[path.filename().string()];
  if (!also || !entry.is_array()) entry = Json::array();
  for (const std::string& one : fingerprints) entry.push_back(one);
  write_manifest(manifest, files, owner_only || is_owners_alone(manifest));
}

void forget_in_manifest(const fs::path& path) {
  const std::string manifest = manifest_of(path);
  Json files = listed_in(manifest);
  if (files.erase(path.filename().string()) == 0) return;
  write_manifest(manifest, files, is_owners_alone(manifest));
}

// Whether a folder holds nothing but what Veil left there when it was killed.
bool is_empty_for_veil(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().rfind(".veil_", 0) != 0) return false;
  }
  return true;
}

fs::path real_path(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  if (error) real = fs::absolute(path).lexically_normal();
  return real.has_filename() ? real : real.parent_path();
}

bool holds(const fs::path& outer, const fs::path& inner) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

bool written_by_veil(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  return is_listed(path) || names_veil(object_in(path));
}

void check_output_file(const std::string& path, bool overwrite) {
  check_file_can_be_written(path);
  std::error_code error;
  const fs::file_status link = fs::symlink_status(path, error);
  if (!fs::exists(link)) return;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    user_error("cannot write '{}': it is not a regular file", path);
  if (overwrite || written_by_veil(path)) return;
  user_error(
      "'{}' exists and is not a file that Veil wrote, or was changed since: choose another name, "
      "or pass `overwrite` to replace it",
      path);
}

// The manifest knows the new content before the file has it, so that a process that is killed at
// any moment leaves a file that is known.
void write_listed_file(const std::string& path, std::string_view content, bool overwrite,
                       bool owner_only) {
  check_output_file(path, overwrite);
  const std::string now = fingerprint(content);
  list_in_manifest(path, {now}, /*also=*/true, owner_only);
  write_file_atomically(path, content, owner_only);
  list_in_manifest(path, {now}, /*also=*/false, owner_only);
}

void expect_output_file(const std::string& path) {
  list_in_manifest(path, {kBeingDrawn}, /*also=*/false, /*owner_only=*/false);
}

void list_output_file(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return forget_in_manifest(path);
  list_in_manifest(path, {fingerprint(read_file(path))}, /*also=*/false, is_owners_alone(path));
}

void claim_output_folder(const std::string& folder) {
  std::error_code error;
  const std::string manifest = join_path(folder, kManifestFile);
  if (names_veil(object_in(manifest))) return;
  if (fs::is_directory(folder, error) && !is_empty_for_veil(folder))
    user_error("folder '{}' holds files that Veil did not write: choose a new or an empty folder",
               folder);
  ensure_folder_writable(folder);
  write_manifest(manifest, Json::object());
}

bool lies_inside(const std::string& inner, const std::string& outer) {
  return holds(real_path(outer), real_path(inner));
}

void check_apart(const std::string& field, const std::string& folder,
                 const std::vector<std::pair<std::string, std::string>>& places) {
  const fs::path here = real_path(folder);
  for (const auto& [path, what] : places) {
    if (path.empty()) continue;
    const fs::path place = real_path(path);
    const char* relation = here == place        ? "is"
                           : holds(here, place) ? "contains"
                           : holds(place, here) ? "is inside"
                                                : nullptr;
    if (relation)
      field_error(field, "{}: the folder {} {} ({}); choose one apart from it", folder, relation,
                  what, path);
  }
}

}  // namespace veil
