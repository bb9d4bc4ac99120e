// Figures of single records and of records that are compared, as tables, plots and verdicts use
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/folder.h"

namespace veil {

// A step's time that records are compared by: the modelled one in a simulated world (its measured
// one holds no communication), otherwise the measured mean. Nothing unless the experiment went
// well.
std::optional<double> compared_ms(const Record& record);

// Allocated bytes at the stage whose name starts with `stage`, of the rank that holds most.
std::optional<double> stage_bytes(const Record& record, const std::string& stage);
// The largest resident memory of any rank at any stage.
std::optional<double> host_bytes(const Record& record);
// Communication of a kind that nothing hid; in a simulated world the modelled one if it is
// recorded.
std::optional<double> exposed_ms(const Record& record, const RecordTransfer& transfer);
std::optional<double> exposed_ms(const Record& record);  // all kinds
// "ddp", "zero3", ... from the settings, in any spelling; "" if they have none.
std::string strategy_of(const Record& record);

// Names that occur in any of the amounts, known ones first in the order of memory categories (or
// of a step's phases), then the others by name.
std::vector<std::string> categories_of(const std::vector<const Amounts*>& amounts);
std::vector<std::string> phases_of(const std::vector<const Amounts*>& amounts);

// Milliseconds of a step that sum to it: phases on the compute lane, waits for other lanes, and
// what is in neither.
Amounts step_parts(const Record& record);
std::vector<std::string> step_parts_of(const std::vector<Record>& records);  // names, in order

// The four moments that memory is compared at.
struct MemoryMoment {
  const char* name;
  std::optional<double> (*bytes)(const Record&);
};
const std::vector<MemoryMoment>& memory_moments();

// Experiments that do the same work on the same world: same model and image, batch, sequence
// length, ranks, device, simulated or not. Only within such a group are times and bytes compared.
struct RecordGroup {
  std::string name;  // "batch 8192, 8 ranks, cuda"
  std::vector<const Record*> records;
};
std::vector<RecordGroup> comparable_groups(const std::vector<Record>& records);

// Whether the step is not private: private steps are compared with it, and it is never recommended.
bool is_plain(const Record* record);
void leave_plain_out(RecordGroup& group);

}  // namespace veil
