// How far long work is: one line that is rewritten on a terminal, with the time left; a plain line a message elsewhere. On stderr, so that stdout stays data.
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
  // `done` of `total` parts are over; total 0 where that is not known. All that was done took its time since this began to be.
  void show(const std::string& text, int64_t done = 0, int64_t total = 0);
  // Where the parts that are over took no equal time: what is left, in seconds, as the caller knows it.
  void show(const std::string& text, std::optional<double> left_s);
  void clear();

 private:
  bool terminal_, shown_ = false;
  double begin_ms_ = steady_ms();
};

}  // namespace veil
