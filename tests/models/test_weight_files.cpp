#include "models/test_weight_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

#include "base/error.h"

namespace veil {

namespace fs = std::filesystem;

WeightFiles::WeightFiles() {
  static std::atomic<int> count{0};
  folder_ = fs::temp_directory_path() / fmt::format("veil_weights_{}_{}", getpid(), count++);
  fs::create_directories(folder_);
}

WeightFiles::~WeightFiles() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::string WeightFiles::path(const std::string& name) const {
  return name.empty() ? folder_.string() : (folder_ / name).string();
}

std::string WeightFiles::raw(const std::string& name, const std::string& header,
                             size_t data_bytes) const {
  const uint64_t length = header.size();
  std::string content(reinterpret_cast<const char*>(&length), sizeof length);
  content += header + std::string(data_bytes, '\0');
  write_file_atomically(path(name), content);
  return path(name);
}

std::string complaint(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

TensorSource float_source(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<float>& values) {
  return {.name = name,
          .dtype = StoredType::f32,
          .dims = dims,
          .produce = [values](const AppendBytes& append) {
            append({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
          }};
}

std::string bytes_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* const tensor = file.find(name);
  if (!tensor) return "no tensor " + name;
  const auto bytes = file.bytes(*tensor);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace veil
