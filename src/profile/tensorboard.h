// Scalars for TensorBoard: an event file that it reads while it is being written.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace veil {

class ScalarLog {
 public:
  // Starts a new event file in `folder` (made if need be). UserError if that cannot be written.
  explicit ScalarLog(const std::string& folder, bool owner_only = false);
  const std::string& path() const { return path_; }

  // Slashes in a tag group plots: "memory/peak_bytes". Written at once.
  void add(const std::string& tag, double value, int64_t step);

 private:
  void record(std::string_view event);

  std::string path_;
  std::ofstream file_;
};

// The parts, so that tests can read a file back.
uint32_t crc32c(std::string_view bytes);         // Castagnoli
uint32_t masked_crc32c(std::string_view bytes);  // as TFRecord frames store it

}  // namespace veil
