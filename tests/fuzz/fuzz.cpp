#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace veil::fuzz {

namespace fs = std::filesystem;

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

const std::string& work_folder() {
  struct Folder {
    std::string path = (fs::temp_directory_path() / ("veil_fuzz_" + std::string(6, 'X'))).string();
    Folder() {
      if (!mkdtemp(path.data())) std::abort();
    }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

std::string input_file(const std::string& name, std::string_view bytes) {
  const std::string path = work_folder() + "/" + name;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != std::ssize(bytes)) std::abort();
  close(file);
  return path;
}

std::string safetensors_bytes(std::string_view input) {
  if (!input.starts_with("{")) return std::string(input);
  const std::string_view header = take_line(input);
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file.append(header).append(input);
}

}  // namespace veil::fuzz
