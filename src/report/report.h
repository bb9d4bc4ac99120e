// The report of a folder of records.
#pragma once

#include <string>
#include <vector>

#include "report/records.h"

namespace veil {

struct ReportFiles {
  std::string output_folder;
  std::string pictures;  // the folder of the plots: visualizations/ in it, or it itself where that is its name
  std::vector<std::string>
      files;            // relative to it: summary.txt, summary.csv, summary.md, index.html, visualizations/...
  std::string summary;  // what summary.txt holds
  std::vector<DamagedRecord> damaged;  // left out
  std::string plots_hint;              // "" or one line: why there are no pictures, and how to get them
};

// Reads the folder's records and writes the report; `output_folder` "" is the folder itself. UserError without records or
// without a folder that can be written; nothing is written then.
ReportFiles write_report(const std::string& folder, const std::string& output_folder);

}  // namespace veil
