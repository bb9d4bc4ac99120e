// Runs a program to its end and watches it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

struct ChildEnd {
  int code = 0;              // its exit code, or 128 + the signal that ended it
  bool timed_out = false;    // it was stopped because it took too long
  bool interrupted = false;  // it was stopped because this process was (Ctrl-C, SIGTERM)
};

// Its output goes to `log`. Its own children end with it, and it ends if this process is killed.
ChildEnd run_child(const std::vector<std::string>& words, const std::string& log,
                   std::optional<double> timeout_s);

}  // namespace veil
