#include "run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/folders.h"
#include "privacy/journal.h"
#include "run/train_config.h"
#include "train/checkpoint.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = ".lock";
constexpr const char* kMetricsFile = "metrics.jsonl";

}  // namespace

std::string unused_run_folder(const std::string& parent) {
  std::string folder = join_path(parent, "run_" + local_time("%Y%m%d_%H%M%S"));
  for (int i = 2; fs::exists(folder); ++i)
    folder = join_path(parent, fmt::format("run_{}_{}", local_time("%Y%m%d_%H%M%S"), i));
  return folder;
}

std::string new_run_folder(const std::string& parent) {
  const std::string folder = unused_run_folder(parent);
  ensure_folder_writable(folder);
  return folder;
}

namespace {

// A run that ended before its first step, for example because memory ran out; none that still runs.
bool began_nothing(const std::string& folder) {
  std::error_code ignored;
  const fs::path metrics = fs::path(folder) / kMetricsFile;
  const bool stepped = fs::exists(metrics, ignored) && fs::file_size(metrics, ignored) > 0;
  if (stepped || newest_checkpoint(folder) || privacy::holds_journal(folder)) return false;
  const int lock = open(join_path(folder, kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return false;
  const bool ended = flock(lock, LOCK_SH | LOCK_NB) == 0;
  close(lock);
  return ended;
}

}  // namespace

std::optional<std::string> find_newest_run_folder(const std::string& parent) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(ignored) && name.rfind("run_", 0) == 0)
      names.push_back(join_path(parent, name));
  }
  if (names.empty()) return std::nullopt;
  std::sort(names.rbegin(), names.rend());
  const auto begun = std::find_if_not(names.begin(), names.end(), began_nothing);
  return begun == names.end() ? names.front() : *begun;
}

std::string newest_run_folder(const std::string& parent) {
  if (const auto newest = find_newest_run_folder(parent)) return *newest;
  throw UserError("resume", fmt::format("finds no run_* folder in {}", parent));
}

std::optional<std::string> resumed_run_folder(const std::string& resume,
                                              const std::string& parent) {
  if (resume.empty()) return std::nullopt;
  if (resume == "auto") return find_newest_run_folder(parent);
  return resume == "latest" ? newest_run_folder(parent) : resume;
}

void check_run_folder(const std::string& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return fs::exists(fs::path(folder) / name, error); };
  const bool started = has(kLockFile) && (has(kMetricsFile) || has(kRunSettings));
  if (started || newest_checkpoint(folder) || privacy::holds_journal(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name != kLockFile && name.rfind(".veil_", 0) != 0)
      field_error("resume",
                  "{}: the folder holds '{}' and no run of `veil train`; pass a run's folder, or "
                  "an empty one to start a run there",
                  folder, name);
  }
}

RunLock::RunLock(const std::string& folder) {
  check_checkpoints_can_be_made(folder);
  make_private_folder(folder);
  ensure_folder_writable(folder);
  const std::string path = join_path(folder, kLockFile);
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor_ < 0) user_error("cannot write '{}': {}", path, std::strerror(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  close(descriptor_);
  user_error("{}: another process trains in this folder; end it first", folder);
}

RunLock::~RunLock() {
  close(descriptor_);
}

}  // namespace veil
