// Weight files made by hand, sound and unsound, in a folder that vanishes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "models/safetensors.h"

namespace veil {

class WeightFiles {
 public:
  WeightFiles();
  ~WeightFiles();
  std::string path(const std::string& name = "") const;
  // A file of `name` with this header and so many zero bytes behind it; the length before it is the
  // header's own.
  std::string raw(const std::string& name, const std::string& header, size_t data_bytes) const;

 private:
  std::filesystem::path folder_;
};

// The message of the UserError that `work` throws; "" if it throws none.
std::string complaint(const std::function<void()>& work);

TensorSource float_source(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<float>& values);
std::string bytes_of(const SafetensorsFile& file, const std::string& name);

}  // namespace veil
