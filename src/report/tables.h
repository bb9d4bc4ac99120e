// The folder's records as tables. CSV holds exact numbers, unit in the column's name, empty cells
// for what is absent; the others hold rounded ones for people and "-".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/table.h"
#include "record/record.h"

namespace veil {

// One line per record: time, memory, communication. Suites may have a table of their own.
Table general_table(const std::vector<Record>& records);
std::string summary_csv(const std::vector<Record>& records);

// The figures behind each plot.
Table time_table(const std::vector<Record>& records);
Table stage_table(const std::vector<Record>& records);
Table breakdown_table(const std::vector<Record>& records);
Table phase_table(const std::vector<Record>& records);
Table row_table(const Record& record);
Table communication_table(const std::vector<Record>& records);

// Whether a step's time has a * behind it, and what that means.
bool any_modelled(const std::vector<Record>& records);
inline constexpr const char* kModelled = "computing measured, communication modelled";

// One unit for bytes that are compared with each other: a column of a table, or all of it.
class BytesScale {
 public:
  void see(std::optional<double> bytes);
  // In GiB if the largest value seen is at least one GiB, otherwise in MiB: "0.50 GiB",
  // "0.0005 MiB"; "-" for none.
  std::string show(std::optional<double> bytes) const;
  std::string show_change(std::optional<double> bytes) const;  // with its sign

 private:
  double largest_ = 0;
};

std::string shown_bytes(std::optional<double> bytes);  // "-" for none
std::string shown_ms(std::optional<double> ms);
std::string percent_text(double share);           // 0.123 as "12%", 0.0123 as "1.2%"
std::string outcome_words(const Record& record);  // "ok", "out of memory", "failed"
std::string spaced(std::string name);             // '_' as ' '

}  // namespace veil
