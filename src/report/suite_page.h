// How the records of one suite are shown: its question, table, plots and verdict. Each suite has
// one (suite/suite.h). What it does not set is shown as for any folder of records.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/table.h"
#include "report/peers.h"
#include "report/plots.h"
#include "report/tables.h"
#include "report/verdict.h"

namespace veil {

// A table that has a section of its own on the page.
struct PageTable {
  std::string title, caption;
  Table table;
};

// A file next to summary.csv.
struct ReportFile {
  std::string name, content;
};

struct SuitePage {
  using Records = std::vector<Record>;

  std::string suite = "";  // as the records name it
  std::string question = "Which set-up, for my memory and my time?";
  // Whether a folder's records are of this suite; by default all of them must name it.
  std::function<bool(const Records&)> holds = {};
  std::function<Table(const Records&)> table = general_table;
  std::vector<std::function<std::vector<Plot>(const Records&)>> plots = general_plots();
  // Caveats that hold for any folder are added. If not set: general_verdict.
  std::function<Verdict(const RecordFolder&)> verdict = {};
  // A step that is not private is the baseline of the others and is never recommended.
  bool plain_is_baseline = false;
  // A remedy of a record in the words of the suite's options; "" if the suite does not accept it.
  // If not set, remedies are as `veil profile` takes them.
  std::function<std::string(const std::string&)> remedy = {};
  std::string sample = "sample";         // what a batch consists of
  bool summary_beside_pictures = false;  // summary.txt is in visualizations/ as well
  std::function<std::vector<PageTable>(const Records&)> more_tables = {};
  std::function<std::vector<ReportFile>(const RecordFolder&)> more_files = {};
  // Plots that show other software's measurements beside the records; they come first.
  std::function<std::vector<Plot>(const Records&, const Peers&)> peer_plots = {};
};

// The page of the records' suite, or the general one.
SuitePage page_of(const std::vector<Record>& records, const std::vector<SuitePage>& pages);

Verdict judge(const RecordFolder& folder, const SuitePage& page);
std::vector<Plot> make_plots(const std::vector<Record>& records, const SuitePage& page,
                             const Peers& peers = {});

// Verdict and table, for a terminal and for a pull request.
std::string summary_text(const RecordFolder& folder, const Verdict& verdict, const SuitePage& page);
std::string summary_markdown(const RecordFolder& folder, const Verdict& verdict,
                             const SuitePage& page);

}  // namespace veil
