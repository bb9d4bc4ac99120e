// Numbers over steps as TensorBoard reads them: one event file in a folder.
#pragma once

#include <cstdio>
#include <string>

namespace veil {

class ScalarLog {
 public:
  // Makes the folder and a new event file in it. UserError where it cannot be written.
  explicit ScalarLog(const std::string& folder);
  ~ScalarLog();
  ScalarLog(const ScalarLog&) = delete;
  ScalarLog& operator=(const ScalarLog&) = delete;
  // One value of the curve `tag`; on disk when it returns.
  void add(const std::string& tag, int64_t step, double value);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event);
  std::string path_;
  std::FILE* file_ = nullptr;
};

// CRC-32C (Castagnoli), as TensorBoard's records carry it.
uint32_t crc32c(const void* bytes, size_t count);

}  // namespace veil
