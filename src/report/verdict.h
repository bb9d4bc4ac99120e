// Conclusions in words, computed from the figures.
#pragma once

#include <string>
#include <vector>

#include "report/figures.h"

namespace veil {

// A figure that stands out on the page.
struct KeyFigure {
  std::string name, value, who;
};

struct Verdict {
  std::string question;
  std::string headline;               // one sentence that answers it
  std::vector<std::string> findings;  // a sentence or two each
  std::vector<std::string> choices =
      {};                               // what to take with how much memory, one sentence per group
  std::vector<KeyFigure> figures = {};  // none: the fastest and the smallest of the first group
  // What limits the figures, what failed, what could not be read.
  std::vector<std::string> caveats = {};
};

// A headline has at most 25 words: the first of these that has no more, or else the last. Empty
// ones are left out; the first letter becomes a capital.
std::string short_headline(const std::vector<std::string>& headlines);

// Time, memory and communication of set-ups that do the same work. `plain_is_baseline`: a step that
// is not private is the baseline of the others and is never recommended.
Verdict general_verdict(const RecordFolder& folder, bool plain_is_baseline);

// Caveats of any folder: simulated worlds, failures, GPU clocks, other work on the machine, records
// that were left out.
std::vector<std::string> caveats_of(const RecordFolder& folder);

// A set-up that no other beats in both time and memory: the one to take with this much memory.
struct Choice {
  const Record* record;
  double ms, bytes;
  const Record* fastest;  // that it stands for: larger, but not measurably faster than it
};
// From most memory to least, each measurably slower than the fastest that the one before stands
// for. Set-ups that need more memory without being measurably faster are left out.
std::vector<Choice> choices(const RecordGroup& group);

}  // namespace veil
