// The page of a training run: what metrics.jsonl of its folder says, as curves over the steps.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "record/metrics_line.h"
#include "report/plots.h"
#include "report/report.h"

namespace veil {

struct TrainingRun {
  std::string folder;
  std::vector<MetricsLine> steps, evaluations;  // by step
  nlohmann::ordered_json settings = {};         // none if settings.json cannot be read
  int64_t damaged = 0;                          // lines that could not be read
  bool is_private() const;
};

// Whether a folder has a training run's metrics and no records of experiments.
bool holds_training(const std::string& folder);
// UserError where no line of the metrics is a step.
TrainingRun read_training(const std::string& folder);

std::vector<Plot> training_plots(const TrainingRun& run);
// For a terminal: what was reached, and a table of some of the steps.
std::string training_summary(const TrainingRun& run);

// Writes summary.txt, summary.csv, index.html and pictures into `output_folder` ("": the folder
// itself). Of a private run only the owner can read them, for losses tell of the data. UserError
// where a file is in the way that Veil did not write; nothing is written then.
ReportFiles write_training_report(const std::string& folder, const std::string& output_folder,
                                  bool overwrite = false);

}  // namespace veil
