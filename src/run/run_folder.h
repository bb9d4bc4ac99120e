// A run's folder: how it is named and found, and who may write into it.
#pragma once

#include <optional>
#include <string>

namespace veil {

// `parent`/run_YYYYMMDD_HHMMSS, with a number if that exists. Named, not made.
std::string unused_run_folder(const std::string& parent);
std::string new_run_folder(const std::string& parent);  // and made
// The newest run_* folder of `parent`, if there is one; UserError if there is none.
std::optional<std::string> find_newest_run_folder(const std::string& parent);
std::string newest_run_folder(const std::string& parent);
// The folder that `resume` means: itself, the newest of `parent` for "latest" and, if there is one,
// for "auto". Nothing if a new run begins.
std::optional<std::string> resumed_run_folder(const std::string& resume, const std::string& parent);

// UserError if the folder holds something and no run of `veil train`: nothing is written into a
// folder that is not a run's. An empty folder, and one that does not exist, may become one.
void check_run_folder(const std::string& folder);

// One process at a time writes into a run's folder: makes the folder and holds it until the process
// ends, however it ends. UserError if another run holds it.
class RunLock {
 public:
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace veil
