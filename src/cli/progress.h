// How far long work is: one line that is rewritten on a terminal, with the time left; a plain line a message elsewhere. On stderr, so that stdout stays data.
#pragma once

#include <string>

#include "base/clock.h"

namespace veil {

class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `done` of `total` parts are over; total 0 where that is not known.
  void show(const std::string& text, int64_t done = 0, int64_t total = 0);
  void clear();

 private:
  bool terminal_, shown_ = false;
  double begin_ms_ = steady_ms();
};

}  // namespace veil
