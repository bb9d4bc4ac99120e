#include "base/stale_files.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <vector>

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr double kOldSeconds = 3600;

// The process in "<name>.<process>[.<count>].tmp"; 0 if that is not how `file` is called.
pid_t process_of_temporary(std::string_view file, std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!file.starts_with(name) || !file.ends_with(kEnd)) return 0;
  file.remove_prefix(name.size());
  if (file.size() <= kEnd.size()) return 0;
  file.remove_suffix(kEnd.size());  // ".<process>" or ".<process>.<count>"
  int numbers = 0;
  for (size_t at = 0; at < file.size(); ++numbers) {
    if (file[at] != '.') return 0;
    const size_t end = std::min(file.find_first_not_of("0123456789", at + 1), file.size());
    if (end == at + 1 || end - at > 10) return 0;
    at = end;
  }
  if (numbers < 1 || numbers > 2) return 0;
  return static_cast<pid_t>(std::strtol(std::string(file.substr(1)).c_str(), nullptr, 10));
}

}  // namespace

int remove_stale_temporaries(const std::string& target, OtherWriters others) {
  const fs::path place(target);
  const std::string name = place.filename().string();
  std::error_code error;
  std::vector<fs::path> found;
  const fs::path folder = place.has_parent_path() ? place.parent_path() : fs::path(".");
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const pid_t process = process_of_temporary(entry->path().filename().string(), name);
    if (process <= 0 || process == getpid()) continue;
    struct stat file {};
    if (lstat(entry->path().c_str(), &file) != 0 || !S_ISREG(file.st_mode) ||
        file.st_uid != geteuid())
      continue;
    const bool gone = kill(process, 0) != 0 && errno == ESRCH;
    const bool old = std::difftime(std::time(nullptr), file.st_mtime) > kOldSeconds;
    if (others == OtherWriters::none || (gone && old)) found.push_back(entry->path());
  }
  int removed = 0;
  for (const fs::path& path : found) removed += unlink(path.c_str()) == 0 ? 1 : 0;
  return removed;
}

}  // namespace veil
