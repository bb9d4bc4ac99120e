#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/folders.h"
#include "base/temporary_file.h"

namespace veil {

namespace fs = std::filesystem;

namespace {

std::string reason(int error) {
  return std::strerror(error);
}

void make_folder(const fs::path& folder) {
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) user_error("cannot make folder '{}': {}", folder.string(), error.message());
  if (!fs::is_directory(folder, error)) user_error("'{}' is not a folder", folder.string());
}

}  // namespace

std::string read_file(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) user_error("cannot read '{}': it is a folder", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) user_error("cannot read '{}': {}", path, reason(errno));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write_file_atomically(const std::string& path, std::string_view content, bool owner_only) {
  const fs::path folder = fs::path(path).parent_path();
  make_folder(folder);
  TemporaryFile file(path, owner_only ? 0600 : 0666);
  int failed = file.write_all(content);
  if (failed == 0) failed = file.rename_to(path);
  if (failed != 0) user_error("cannot write '{}': {}", path, reason(failed));
  sync_folder(folder.string());
}

void write_whole(const std::string& path, const std::function<void(const AppendBytes&, int)>& write,
                 const std::function<void()>& before_name) {
  const fs::path folder = fs::path(path).parent_path();
  make_folder(folder);
  TemporaryFile file(path, 0666);
  const auto expect = [&](int failed) {
    if (failed != 0) user_error("cannot write '{}': {}", path, reason(failed));
  };
  expect(file.append(""));
  write([&](std::string_view piece) { expect(file.append(piece)); }, file.descriptor());
  expect(file.sync());
  if (before_name) before_name();
  expect(file.rename_to(path));
  sync_folder(folder.string());
}

void write_stream_atomically(const std::string& path,
                             const std::function<void(const AppendBytes&)>& produce) {
  write_whole(path, [&](const AppendBytes& append, int) { produce(append); });
}

void ensure_folder_writable(const std::string& folder) {
  make_folder(folder);
  const auto expect = [&](int failed) {
    if (failed != 0)
      user_error("cannot write into folder '{}': {}; choose another folder", folder,
                 reason(failed));
  };
  // A file without a name leaves nothing behind, whatever ends the process. Not every file system
  // has them.
  const int unnamed = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (unnamed >= 0) {
    const int failed = write(unnamed, "x", 1) == 1 ? 0 : errno;
    close(unnamed);
    return expect(failed);
  }
  TemporaryFile probe(join_path(folder, ".veil_probe"), 0600);
  expect(probe.write_all("x"));
}

void check_folder_can_be_made(const std::string& folder) {
  std::error_code error;
  fs::path nearest = fs::absolute(folder, error);
  while (!fs::exists(nearest, error) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  if (!fs::is_directory(nearest, error)) {
    user_error("cannot make folder '{}': '{}' is not a folder", folder, nearest.string());
  }
  if (access(nearest.c_str(), W_OK | X_OK) != 0) {
    user_error("cannot write into folder '{}': {}", nearest.string(), reason(errno));
  }
}

void check_file_can_be_written(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) user_error("cannot write '{}': it is a folder", path);
  check_folder_can_be_made(fs::absolute(path, error).parent_path().string());
}

std::string join_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

}  // namespace veil
