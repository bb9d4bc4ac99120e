#include "cli/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace veil {

RunLock::RunLock(const std::string& folder) {
  ensure_folder_writable(folder);
  const std::string path = join_path(folder, ".lock");
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
