// Words computed from figures: what a person would say after reading the table.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/records.h"

namespace veil {

// What a set-up that nothing beats in both time and memory asks for: with at least this memory, take this one.
struct Choice {
  const Record* record;
  double ms, bytes;
};

// A figure that stands out on the page.
struct KeyFigure {
  std::string name, value, who;
};

struct Verdict {
  std::string question;
  std::string headline;                 // one sentence that answers it
  std::vector<std::string> findings;    // a sentence or two each
  std::vector<std::string> choices;     // which to take with how much memory, a sentence a group
  std::vector<KeyFigure> figures = {};  // none: the fastest and the smallest of the first group
  std::vector<std::string> caveats;     // what the figures are not, what failed, what could not be read
};

Verdict judge(const RecordFolder& folder);

// A step's time that records are compared by: the modelled one in a simulated world (its measured one holds no
// communication), otherwise the measured mean. Nothing unless the experiment went well.
std::optional<double> compared_ms(const Record& record);

// Experiments that do the same work on the same world: same model and image, batch, sequence length, ranks, device, simulated or not.
// Only within such a group are times and bytes compared.
struct RecordGroup {
  std::string name;  // "batch 8192, 8 ranks, cuda"
  std::vector<const Record*> records;
};
std::vector<RecordGroup> comparable_groups(const std::vector<Record>& records);
// A step that is not private is what the others are measured against, and none of the choices.
void leave_plain_out(RecordGroup& group);

// From most memory to least, each measurably slower than the one before: what needs more memory for no time that the
// noise would let one see is left out.
std::vector<Choice> choices(const RecordGroup& group);

}  // namespace veil
