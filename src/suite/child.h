// A program that is run to its end and watched meanwhile.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace veil {

struct ChildEnd {
  int code = 0;              // its exit code, or 128 + the signal that ended it
  bool timed_out = false;    // it was ended, for it took too long
  bool interrupted = false;  // it was ended, for this process was asked to stop (Ctrl-C or SIGTERM)
};

// Its output goes to `log`. What it started ends with it, and it ends where this process is killed.
ChildEnd run_child(const std::vector<std::string>& words, const std::string& log, std::optional<double> timeout_s);

}  // namespace veil
