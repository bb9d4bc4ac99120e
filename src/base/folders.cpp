#include "base/folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace veil {

void sync_folder(const std::string& folder) {
  const int descriptor =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

void make_private_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path path = fs::path(folder).lexically_normal(),
                 place = path.has_filename() ? path : path.parent_path();  // "folder/"
  if (fs::is_directory(place, error)) return;
  if (place.has_parent_path()) fs::create_directories(place.parent_path(), error);
  if (error) user_error("cannot make folder '{}': {}", folder, error.message());
  // A umask takes bits away and adds none.
  if (mkdir(place.c_str(), 0700) != 0 && errno != EEXIST)
    user_error("cannot make folder '{}': {}", folder, std::strerror(errno));
}

}  // namespace veil
