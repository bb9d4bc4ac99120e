// Progress of long work, with the time left: one line that is rewritten on a terminal, one line per
// message elsewhere. Written to stderr, so that stdout holds data only.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"

namespace veil {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `done` of `total` parts are finished (total 0: not known), in the time since construction.
  void show(const std::string& text, int64_t done = 0, int64_t total = 0);
  // The same with the remaining seconds given, for parts that take different times.
  void show(const std::string& text, std::optional<double> left_s);
  void clear();

 private:
  bool terminal_, shown_ = false;
  double begin_ms_ = steady_ms();
};

}  // namespace veil
