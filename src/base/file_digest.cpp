#include "base/file_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/sha256_lanes.h"
#include "base/temporary_file.h"

namespace veil {

namespace {

constexpr int64_t kFilePiece = int64_t{1} << 20;

struct OpenFile {
  int descriptor;
  explicit OpenFile(const std::string& path)
      : descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  explicit OpenFile(int other) : descriptor(fcntl(other, F_DUPFD_CLOEXEC, 0)) {}
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
};

// Reads and hashes pieces, each on one thread.
class PieceReader {
 public:
  PieceReader(const std::string& path, int descriptor) : path_(path), descriptor_(descriptor) {}

  // The digests of `count` pieces from the `first` on, of a file of `size` bytes.
  void hash(int64_t first, int64_t count, int64_t size, Sha256Digest* digests) {
    constexpr int64_t kLanes = Sha256Lanes::kLanes;
    // Lanes that are not used cost as much as the others.
    int64_t together = std::clamp<int64_t>(size / kFilePiece - first, 0, std::min(count, kLanes));
    if (!Sha256Lanes::available() || together < kLanes / 4) together = 0;
    if (together > 0) hash_together(first, together, digests);
    for (int64_t i = together; i < count; ++i) digests[i] = hash_one(first + i, size);
  }

 private:
  // Stays in the processor's cache; a lane's blocks begin in another line of it than the last one's.
  static constexpr int64_t kBlock = int64_t{1} << 14, kStride = kBlock + 64;

  void read(int64_t at, int64_t bytes, char* out) const {
    while (bytes > 0) {
      const ssize_t got = pread(descriptor_, out, static_cast<size_t>(bytes), at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        user_error("cannot read '{}': {}", path_,
                   got < 0 ? std::strerror(errno) : "it became shorter");
      at += got;
      out += got;
      bytes -= got;
    }
  }

  Sha256Digest hash_one(int64_t piece, int64_t size) {
    Sha256 hash;
    const int64_t end = std::min(size, (piece + 1) * kFilePiece);
    for (int64_t at = piece * kFilePiece; at < end; at += kBlock) {
      const int64_t bytes = std::min(kBlock, end - at);
      read(at, bytes, blocks_.get());
      hash.add(std::string_view(blocks_.get(), static_cast<size_t>(bytes)));
    }
    return hash.digest();
  }

  void hash_together(int64_t first, int64_t count, Sha256Digest* digests) {
    // The reads below jump from piece to piece, which no system foresees.
    posix_fadvise(descriptor_, first * kFilePiece, count * kFilePiece, POSIX_FADV_WILLNEED);
    Sha256Lanes lanes;
    std::array<const char*, Sha256Lanes::kLanes> places;
    places.fill(blocks_.get());
    for (int64_t i = 0; i < count; ++i)
      places[static_cast<size_t>(i)] = blocks_.get() + i * kStride;
    for (int64_t at = 0; at < kFilePiece; at += kBlock) {
      for (int64_t i = 0; i < count; ++i)
        read((first + i) * kFilePiece + at, kBlock, blocks_.get() + i * kStride);
      lanes.add(places, kBlock / Sha256Lanes::kBlock);
    }
    const auto found = lanes.digests();
    std::copy_n(found.begin(), count, digests);
  }

  const std::string& path_;
  int descriptor_;
  std::unique_ptr<char[]> blocks_{new char[Sha256Lanes::kLanes * kStride]};
};

// The digest of a file that may still grow. Threads hash what is there, once it fills a group of
// pieces; a small file needs none.
class FileHash {
 public:
  // `descriptor` may be closed afterwards.
  FileHash(const std::string& path, int descriptor, int threads)
      : path_(path), file_(descriptor), threads_(threads) {
    if (file_.descriptor < 0) user_error("cannot read '{}': {}", path, std::strerror(errno));
  }
  ~FileHash() { end(); }
  FileHash(const FileHash&) = delete;
  FileHash& operator=(const FileHash&) = delete;

  // So many bytes are there, and none of them changes any more.
  void grow_to(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_ = bytes;
    const int64_t groups = bytes_ / (group_ * kFilePiece) - next_;
    if (groups > 0) work_elsewhere(groups);
  }
  // They are all.
  void last_byte_is_there() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    if (bytes_ / kFilePiece > 0) work_elsewhere(1);
  }

  // Of all of it. Throws what a thread met.
  Sha256Digest digest() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    work();
    end();
    if (failed_) std::rethrow_exception(failed_);
    Sha256 all;
    all.add(static_cast<uint64_t>(digests_.size()));
    for (const Sha256Digest& digest : digests_) all.add(digest);
    return all.digest();
  }

 private:
  // The last piece is the rest, and empty if there is none.
  int64_t pieces() const { return bytes_ / kFilePiece + (ended_ ? 1 : 0); }

  void work_elsewhere(int64_t groups) {
    changed_.notify_all();
    try {
      while (std::ssize(others_) < std::min(groups, threads_))
        others_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      threads_ = 0;  // no more to be had: it takes longer
    }
  }
  void work() {
    PieceReader reader(path_, file_.descriptor);
    std::vector<Sha256Digest> found(static_cast<size_t>(group_));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || failed_ || (next_ + 1) * group_ <= pieces(); });
      const int64_t first = next_ * group_, count = std::min(group_, pieces() - first),
                    size = bytes_;
      if (failed_ || count <= 0) return;
      ++next_;
      lock.unlock();
      std::exception_ptr failed;
      try {
        reader.hash(first, count, size, found.data());
      } catch (...) {
        failed = std::current_exception();
      }
      lock.lock();
      if (failed && !failed_) failed_ = failed;
      if (failed) return changed_.notify_all();
      digests_.resize(std::max(digests_.size(), static_cast<size_t>(first + count)));
      std::copy_n(found.begin(), count, digests_.begin() + first);
    }
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : others_) thread.join();
    others_.clear();
  }

  const std::string path_;
  const OpenFile file_;
  const int64_t group_ = Sha256Lanes::available() ? Sha256Lanes::kLanes : 1;  // pieces
  int64_t threads_;  // at most, in addition to that of digest()
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t bytes_ = 0, next_ = 0;  // bytes that are there; the next group
  bool ended_ = false;
  std::exception_ptr failed_;
  std::vector<Sha256Digest> digests_;
  std::vector<std::thread> others_;
};

int cores() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace

Sha256Digest digest_of_file(const std::string& path) {
  const OpenFile file(path);
  struct stat facts {};
  if (file.descriptor < 0 || fstat(file.descriptor, &facts) != 0)
    user_error("cannot read '{}': {}", path, std::strerror(errno));
  // A core is left to whoever reads the file at the same time.
  FileHash hash(path, file.descriptor, cores() - 2);
  hash.grow_to(facts.st_size);
  return hash.digest();
}

Sha256Digest write_hashed_stream(const std::string& path,
                                 const std::function<void(const AppendBytes&)>& produce) {
  // A disk is slower than a few cores hash; the others may have better things to do.
  constexpr int kMostThreads = 4;
  std::optional<FileHash> hash;
  Sha256Digest digest{};
  write_whole(
      path,
      [&](const AppendBytes& append, int descriptor) {
        hash.emplace(path, descriptor, std::clamp(cores() - 1, 1, kMostThreads));
        int64_t bytes = 0;
        produce([&](std::string_view piece) {
          append(piece);
          bytes += static_cast<int64_t>(piece.size());
          hash->grow_to(bytes);
        });
        hash->last_byte_is_there();
      },
      [&] { digest = hash->digest(); });
  return digest;
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
