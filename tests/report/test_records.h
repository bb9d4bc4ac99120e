// Records as `veil suite linear` leaves them, made up, but of the shape and size that its default
// model has on 8 ranks.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/report.h"

namespace veil::test {

// Basic DDP, basic FSDP, memory-optimised and performance-optimised, in a simulated world of 8.
std::vector<nlohmann::json> linear_suite_records();

// With the pages of all suites.
ReportFiles write_report(const std::string& folder, const std::string& output_folder);
Verdict judge(const RecordFolder& folder);

// A folder of one's own that vanishes.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name = "") const;
  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;
  // each as <experiment>_result.json
  void write_records(const std::vector<nlohmann::json>& records) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace veil::test
