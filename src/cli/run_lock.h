// One process at a time writes into a run's folder.
#pragma once

#include <string>

namespace veil {

// Makes the folder and holds it until the process ends, however it ends. UserError where another run holds it.
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
