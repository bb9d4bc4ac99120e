// What base/files.h writes into, until it is whole.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace veil {

// A file under a temporary name that vanishes unless it is renamed into place.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& beside, mode_t mode) {
    // Several threads and ranks may write into one folder at once, so the name holds both the
    // process and a count.
    static std::atomic<int> count{0};
    path_ = fmt::format("{}.{}.{}.tmp", beside, getpid(), count++);
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor_ < 0) error_ = errno;
    exists_ = descriptor_ >= 0;
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (exists_ && !renamed_) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int descriptor() const { return descriptor_; }  // for reading as well; below 0 if it has failed
  // Each answers errno, or 0.
  int append(std::string_view content) {
    if (descriptor_ < 0) return error_;
    while (!content.empty()) {
      const ssize_t wrote = write(descriptor_, content.data(), content.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return errno;
      content.remove_prefix(static_cast<size_t>(wrote));
    }
    return 0;
  }
  int sync() {
    if (descriptor_ < 0) return error_;
    return fsync(descriptor_) == 0 ? 0 : errno;
  }
  int write_all(std::string_view content) {
    const int failed = append(content);
    return failed != 0 ? failed : sync();
  }
  int rename_to(const std::string& target) {
    const int closed = close(descriptor_);
    descriptor_ = -1;
    if (closed != 0 || rename(path_.c_str(), target.c_str()) != 0) return errno;
    renamed_ = true;
    return 0;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
  bool exists_ = false, renamed_ = false;
};

// write_stream_atomically (base/files.h, and defined there) with two more moments: `write` also gets
// the file's descriptor, by which it may be read, and `before_name` is called when all is on disk and
// has no name yet.
void write_whole(const std::string& path,
                 const std::function<void(const std::function<void(std::string_view)>& append,
                                          int descriptor)>& write,
                 const std::function<void()>& before_name = {});

}  // namespace veil
