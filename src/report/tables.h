// The folder's records as tables. CSV holds exact numbers, unit in the column's name, empty cells for what is absent;
// the others hold rounded ones for people and "-".
#pragma once

#include <string>
#include <vector>

#include "base/table.h"
#include "report/records.h"
#include "report/verdict.h"

namespace veil {

Table summary_table(const std::vector<Record>& records);
std::string summary_csv(const std::vector<Record>& records);
std::string summary_text(const RecordFolder& folder, const Verdict& verdict);      // verdict and table, for a terminal
std::string summary_markdown(const RecordFolder& folder, const Verdict& verdict);  // the same for a pull request

// The figures behind each plot.
Table time_table(const std::vector<Record>& records);
Table stage_table(const std::vector<Record>& records);
Table breakdown_table(const std::vector<Record>& records);
Table phase_table(const std::vector<Record>& records);
Table row_table(const Record& record);
Table communication_table(const std::vector<Record>& records);

// Milliseconds of a step that sum to it: phases on the compute lane, waits for other lanes, and what is in neither.
Amounts step_parts(const Record& record);
std::vector<std::string> step_parts_of(const std::vector<Record>& records);  // names, in order

// The four moments that memory is compared at.
struct MemoryMoment {
  const char* name;
  std::optional<double> (*bytes)(const Record&);
};
const std::vector<MemoryMoment>& memory_moments();

// Whether a step's time has a * behind it, and what that means.
bool any_modelled(const std::vector<Record>& records);
inline constexpr const char* kModelled = "computing measured, communication modelled";

std::string shown_bytes(std::optional<double> bytes);  // "-" for none
std::string shown_ms(std::optional<double> ms);
std::string outcome_words(const Record& record);  // "ok", "out of memory", "failed"
std::string spaced(std::string name);             // '_' as ' '

}  // namespace veil
