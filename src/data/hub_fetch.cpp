#include "data/hub_fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "data/http.h"
#include "data/hub.h"
#include "data/hub_session.h"

namespace veil {

namespace fs = std::filesystem;

const NameTable<FileState>& names(FileState) {
  static const NameTable<FileState> table = {{FileState::cached, "cached"},
                                             {FileState::resumed, "resumed"},
                                             {FileState::downloaded, "downloaded"},
                                             {FileState::absent, "absent"}};
  return table;
}

namespace {

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) user_error("cannot make folder '{}': {}", folder.string(), error.message());
}

// Held while a file is fetched, against another fetch of the same file; the kernel gives it back
// when the process ends.
class FileLock {
 public:
  FileLock(const std::string& path, const std::function<void()>& tell_that_it_waits) {
    make_folder(fs::path(path).parent_path());
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) user_error("cannot write '{}': {}", path, std::strerror(errno));
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    tell_that_it_waits();
    while (flock(descriptor_, LOCK_EX) != 0) {
      if (errno != EINTR) user_error("cannot lock '{}': {}", path, std::strerror(errno));
    }
  }
  ~FileLock() { close(descriptor_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_ = -1;
};

int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

// blobs/<checksum>.incomplete, with the checksum of what it holds.
class PartialFile {
 public:
  PartialFile(const std::string& path, const HubSession::FileFacts& facts)
      : path_(path), facts_(facts) {
    descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail();
    if (size_of(path) > facts.bytes) truncate();
    digest_ = std::make_unique<Digest>(fresh_digest());
    std::string piece(size_t{1} << 20, '\0');
    while (true) {
      const ssize_t got = read(descriptor_, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail();
      if (got == 0) break;
      digest_->add({piece.data(), static_cast<size_t>(got)});
      held_ += got;
    }
  }
  ~PartialFile() { close(descriptor_); }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  int64_t held() const { return held_; }
  void truncate() {
    if (ftruncate(descriptor_, 0) != 0 || lseek(descriptor_, 0, SEEK_SET) != 0) fail();
    digest_ = std::make_unique<Digest>(fresh_digest());
    held_ = 0;
  }
  // False if more comes than the file should have; that is not kept.
  bool append(std::string_view bytes) {
    if (static_cast<int64_t>(bytes.size()) > facts_.bytes - held_) return false;
    digest_->add(bytes);
    held_ += static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
      const ssize_t wrote = write(descriptor_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) fail();
      bytes.remove_prefix(static_cast<size_t>(wrote));
    }
    return true;
  }
  std::string checksum() { return digest_->hex(); }
  void become(const std::string& blob) {
    if (fsync(descriptor_) != 0 || rename(path_.c_str(), blob.c_str()) != 0) fail();
  }

 private:
  Digest fresh_digest() const {
    return Digest(facts_.checksum.size() == 64 ? DigestKind::sha256 : DigestKind::git_blob,
                  facts_.bytes);
  }
  [[noreturn]] void fail() const {
    user_error("cannot write '{}': {}", path_, std::strerror(errno));
  }

  std::string path_;
  HubSession::FileFacts facts_;
  int descriptor_ = -1;
  int64_t held_ = 0;
  std::unique_ptr<Digest> digest_;
};

class Fetch {
 public:
  Fetch(const FetchRequest& request, const std::function<void(const FetchProgress&)>& progress)
      : request_(request),
        show_(progress),
        folder_(hub_model_folder(request.cache_root, request.model)),
        session_(request, [this](const std::string& note) { tell(note); }) {}

  FetchedModel run() {
    const HubSession::Listing listing = session_.list();
    result_.commit = listing.commit;
    result_.folder = join_path(folder_, "snapshots/" + listing.commit);
    choose(listing.files);
    for (FetchedFile& file : result_.files) look_up(file);
    for (const FetchedFile& file : result_.files) {
      progress_.total_bytes += file.bytes;
      if (file.state == FileState::cached) progress_.done_bytes += file.bytes;
    }
    if (request_.dry_run) return result_;
    check_space();
    for (FetchedFile& file : result_.files) {
      if (file.state != FileState::cached) bring(file);
    }
    for (const FetchedFile& file : result_.files) link(file);
    if (request_.revision != result_.commit) {
      write_file_atomically(join_path(folder_, "refs/" + request_.revision), result_.commit);
    }
    return result_;
  }

 private:
  void tell(const std::string& note) {
    progress_.note = note;
    show();
    progress_.note.clear();
  }
  void show() {
    if (show_) show_(progress_);
  }
  std::string blob(const FetchedFile& file) const {
    return join_path(folder_, "blobs/" + file.checksum);
  }

  void choose(const std::vector<std::string>& files) {
    const std::vector<std::string> wanted = request_.all ? files : files_of_a_model(files);
    const auto weights = [](const std::string& name) { return name.ends_with(".safetensors"); };
    if (!request_.all && std::none_of(wanted.begin(), wanted.end(), weights)) {
      user_error(
          "model {} has no safetensors at revision '{}' ({} files): fetch all files to get what it "
          "has",
          request_.model, printable(request_.revision), files.size());
    }
    for (const std::string& name : wanted) result_.files.emplace_back().name = name;
  }

  // A commit never changes, so a file that its snapshot already links to needs no question.
  void look_up(FetchedFile& file) {
    std::error_code error;
    const fs::path target = fs::read_symlink(join_path(result_.folder, file.name), error);
    if (!error) {
      file.checksum = target.filename().string();
      file.bytes = size_of(blob(file));
      if (file.bytes >= 0) {
        file.state = FileState::cached;
        return;
      }
    }
    const HubSession::FileFacts facts = session_.facts(result_.commit, file.name);
    file.checksum = facts.checksum;
    file.bytes = facts.bytes;
    if (size_of(blob(file)) == facts.bytes) file.state = FileState::cached;
  }

  void check_space() const {
    int64_t missing = 0;
    for (const FetchedFile& file : result_.files) {
      if (file.state != FileState::cached) {
        missing += std::max<int64_t>(
            0, file.bytes - std::max<int64_t>(0, size_of(blob(file) + ".incomplete")));
      }
    }
    if (missing == 0) return;
    make_folder(fs::path(folder_) / "blobs");
    std::error_code error;
    const fs::space_info space = fs::space(folder_, error);
    if (!error && missing > 0 && static_cast<uint64_t>(missing) > space.available) {
      user_error("model {} takes {} more, and '{}' has {} left: choose another cache folder",
                 request_.model, format_bytes(missing), request_.cache_root,
                 format_bytes(static_cast<int64_t>(space.available)));
    }
  }

  void bring(FetchedFile& file) {
    progress_.file = file.name;
    const std::string name = fs::path(folder_).filename().string();
    const FileLock lock(
        join_path(request_.cache_root, fmt::format(".locks/{}/{}.lock", name, file.checksum)),
        [&] { tell(fmt::format("{}: another fetch is at it; waiting", printable(file.name))); });
    // that other fetch, or a second name of the same content
    if (size_of(blob(file)) == file.bytes) {
      file.state = FileState::cached;
      progress_.done_bytes += file.bytes;
    } else {
      make_folder(fs::path(folder_) / "blobs");
      download(file);
    }
    progress_.file_ended = true;
    show();
    progress_.file_ended = false;
  }

  void download(FetchedFile& file) {
    const std::string path = blob(file) + ".incomplete";
    PartialFile partial(path, {file.checksum, file.bytes});
    const int64_t done_before = progress_.done_bytes;
    const bool resumed = partial.held() > 0;
    file.state = resumed ? FileState::resumed : FileState::downloaded;
    if (partial.held() < file.bytes || file.bytes == 0) receive(file, partial, done_before);
    if (partial.held() == file.bytes && partial.checksum() == file.checksum)
      return partial.become(blob(file));
    if (resumed && partial.held() == file.bytes) {  // what was held may have been wrong
      tell(fmt::format("{}: what was there does not fit; from the start", printable(file.name)));
      partial.truncate();
      file.state = FileState::downloaded;
      receive(file, partial, done_before);
      if (partial.held() == file.bytes && partial.checksum() == file.checksum)
        return partial.become(blob(file));
    }
    reject(file, path, partial.held());
  }

  void receive(FetchedFile& file, PartialFile& partial, int64_t done_before) {
    progress_.done_bytes = done_before + partial.held();
    const auto begin = [&](int64_t first) {
      if (first == partial.held()) return;
      partial.truncate();
      file.state = FileState::downloaded;
    };
    const auto take = [&](std::string_view bytes) {
      if (!partial.append(bytes)) reject(file, blob(file) + ".incomplete", -1);
      file.received_bytes += static_cast<int64_t>(bytes.size());
      progress_.received_bytes += static_cast<int64_t>(bytes.size());
      progress_.done_bytes = done_before + partial.held();
      show();
    };
    session_.download(
        result_.commit, file.name, [&] { return partial.held(); }, begin, take);
  }

  [[noreturn]] void reject(const FetchedFile& file, const std::string& path, int64_t held) const {
    unlink(path.c_str());
    const std::string wrong = held == file.bytes ? "its checksum is wrong"
                              : held < 0         ? "it is longer than the hub says"
                                                 : fmt::format("it has {} bytes", held);
    throw UserError(
        fmt::format(
            "{} of {} came wrong: {}; the hub says {} bytes and {}. It is not kept; try again",
            printable(file.name), request_.model, wrong, file.bytes, file.checksum),
        kExitFailed);
  }

  // snapshots/<commit>/a/b -> ../../../blobs/<checksum>
  void link(const FetchedFile& file) const {
    const fs::path place = fs::path(result_.folder) / file.name;
    make_folder(place.parent_path());
    fs::path target = "../..";
    for (auto depth = std::count(file.name.begin(), file.name.end(), '/'); depth > 0; --depth)
      target /= "..";
    target /= fs::path("blobs") / file.checksum;
    std::error_code error;
    if (fs::read_symlink(place, error) == target && !error) return;
    // Another fetch of the same model may be at this line, in this process or in another.
    static std::atomic<int> count{0};
    const std::string temporary = fmt::format("{}.{}.{}.tmp", place.string(), getpid(), count++);
    unlink(temporary.c_str());
    if (symlink(target.c_str(), temporary.c_str()) != 0 ||
        rename(temporary.c_str(), place.c_str()) != 0) {
      user_error("cannot write '{}': {}", place.string(), std::strerror(errno));
    }
  }

  const FetchRequest& request_;
  std::function<void(const FetchProgress&)> show_;
  std::string folder_;
  HubSession session_;
  FetchProgress progress_;
  FetchedModel result_;
};

}  // namespace

FetchedModel fetch_model(const FetchRequest& request,
                         const std::function<void(const FetchProgress&)>& progress) {
  check_hub_id(request.model);
  if (!is_safe_path(request.revision)) {
    field_error("revision", "'{}': allowed is a branch, a tag or a commit",
                printable(request.revision));
  }
  VEIL_CHECK(!request.cache_root.empty(), "no cache folder");
  return Fetch(request, progress).run();
}

}  // namespace veil
