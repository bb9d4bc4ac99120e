#include "base/file_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace veil {

namespace {

struct OpenFile {
  int descriptor;
  explicit OpenFile(const std::string& path)
      : descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

}  // namespace

Sha256Digest digest_of_file(const std::string& path) {
  constexpr int64_t kPiece = int64_t{1} << 20, kBlock = int64_t{1} << 16;
  const OpenFile file(path);
  struct stat facts {};
  if (file.descriptor < 0 || fstat(file.descriptor, &facts) != 0)
    user_error("cannot read '{}': {}", path, std::strerror(errno));
  const int64_t size = facts.st_size;
  // The last piece is the rest, and empty if there is none.
  return digest_of_parts(size / kPiece + 1, [&](int64_t piece) {
    Sha256 hash;
    char block[kBlock];  // stays in the processor's cache
    const int64_t end = std::min(size, (piece + 1) * kPiece);
    for (int64_t at = piece * kPiece; at < end;) {
      const ssize_t got =
          pread(file.descriptor, block, static_cast<size_t>(std::min(kBlock, end - at)), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        user_error("cannot read '{}': {}", path,
                   got < 0 ? std::strerror(errno) : "it became shorter");
      hash.add(std::string_view(block, static_cast<size_t>(got)));
      at += got;
    }
    return hash.digest();
  });
}

Sha256Digest digest_of_files(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->is_regular_file()) files.push_back(entry->path());
  }
  if (error) user_error("cannot read the folder '{}': {}", folder, error.message());
  std::sort(files.begin(), files.end());
  Sha256 all;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    all.add(static_cast<uint64_t>(name.size()));
    all.add(name);
    all.add(digest_of_file(file.string()));
  }
  return all.digest();
}

}  // namespace veil
