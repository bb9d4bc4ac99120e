// Training runs side by side, such as a private one and a plain one: what each reached, in what
// time and memory, for which epsilon, and the settings in which they differ.
#pragma once

#include <string>
#include <vector>

#include "report/training_run.h"

namespace veil {

inline constexpr size_t kMostCompared = 8;  // as many as have colours of their own

struct ComparedRun {
  std::string name;  // what tells its folder from the others'
  TrainingRun run;
};
// UserError where a folder is no training run's or is given twice.
std::vector<ComparedRun> read_compared(const std::vector<std::string>& folders);

std::string comparison_headline(const std::vector<ComparedRun>& runs);
Table comparison_table(const std::vector<ComparedRun>& runs);
// The settings of which some runs have another value, a column for each run.
Table differing_settings(const std::vector<ComparedRun>& runs);
std::string comparison_text(const std::vector<ComparedRun>& runs);  // for a terminal
std::vector<Plot> comparison_plots(const std::vector<ComparedRun>& runs);

// Writes comparison.txt, comparison.csv, comparison.html and pictures in comparison/ into
// `output_folder`, if that is not "". With a private run among them only the owner can read them.
// Files that Veil did not write stay, as in write_report.
ReportFiles write_training_comparison(const std::vector<std::string>& folders,
                                      const std::string& output_folder, bool overwrite = false);

}  // namespace veil
