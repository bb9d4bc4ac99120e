// The report of a folder of records.
#pragma once

#include <string>
#include <vector>

#include "record/folder.h"
#include "report/suite_page.h"

namespace veil {

struct ReportFiles {
  std::string output_folder;
  // The folder of the plots: visualizations/ in it, or the folder itself if that is its name.
  std::string pictures;
  // Relative to it: summary.txt, summary.csv, summary.md, index.html, visualizations/...
  std::vector<std::string> files;
  std::string summary;                 // what summary.txt holds
  std::vector<DamagedRecord> damaged;  // left out
  std::string plots_hint;  // "" or one line: why there are no pictures, and how to get them
};

// Reads the folder's records and writes the report as their suite's page describes it.
// `output_folder` "" is the folder itself. UserError if there are no records or the folder cannot
// be written, or if a file is in the way that Veil did not write (base/outputs.h); nothing is
// written then. UserError for `peers` beside records that they cannot be compared with.
ReportFiles write_report(const std::string& folder, const std::string& output_folder,
                         const std::vector<SuitePage>& pages, bool overwrite = false,
                         const Peers& peers = {});

}  // namespace veil
