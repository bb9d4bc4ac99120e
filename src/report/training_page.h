// The page of a training run: what metrics.jsonl of its folder says, as curves over the steps.
#pragma once

#include <string>
#include <vector>

#include "report/training_run.h"

namespace veil {

std::vector<Plot> training_plots(const TrainingRun& run);
// For a terminal: what was reached, and a table of some of the steps.
std::string training_summary(const TrainingRun& run);

// Writes summary.txt, summary.csv, index.html and pictures into `output_folder` ("": the folder
// itself). Of a private run only the owner can read them, for losses tell of the data. UserError
// where a file is in the way that Veil did not write; nothing is written then.
ReportFiles write_training_report(const std::string& folder, const std::string& output_folder,
                                  bool overwrite = false);

}  // namespace veil
