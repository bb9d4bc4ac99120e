#include "fuzz/fuzz.h"

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
    std::string path = (fs::temp_directory_path() / "veil_fuzz_XXXXXX").string();
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
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) std::abort();
  std::fclose(file);
  return path;
}

}  // namespace veil::fuzz
