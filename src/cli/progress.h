// Progress of long work, with the time left: one line that is rewritten on a terminal, one line per
// message elsewhere. Written to stderr, so that stdout holds data only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace veil {

// "[######..................]"
std::string progress_bar(int64_t done, int64_t total);

// A part of a line, and how soon it is left out if the line is too long: the highest first; 0
// stays.
struct LinePart {
  std::string text;
  int dispensable = 0;
};
// Lines of one kind. A part that did not fit in one is left out of those after it too, so that
// columns stay in their places. Another width starts over.
class LineFitter {
 public:
  // The parts two spaces apart, in at most `columns` if leaving parts out allows it.
  std::string fitted(const std::vector<LinePart>& parts, size_t columns);

 private:
  size_t columns_ = 0;
  int left_out_ = 0;  // parts as dispensable as this; 0: none
};

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
