// veil report: tables, plots and one page from a folder of records.
#include "report/report.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "report/audit_page.h"
#include "report/changes.h"
#include "report/training_comparison.h"
#include "report/training_page.h"
#include "suite/suite.h"

namespace veil {
namespace {

void say_hint(const std::string& plots_hint) {
  std::fflush(stdout);
  if (!plots_hint.empty())
    fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), plots_hint);
}

void compare_trainings(const std::vector<std::string>& folders, const std::string& output_folder,
                       bool overwrite) {
  const ReportFiles report = write_training_comparison(folders, output_folder, overwrite);
  fmt::print("{}", report.summary);
  if (!report.output_folder.empty())
    fmt::print("\npage      {}\npictures  {}\n", join_path(report.output_folder, "comparison.html"),
               report.pictures);
  say_hint(report.plots_hint);
}

}  // namespace

int run_report(const CommandCall& call) {
  std::vector<std::string> folders;
  std::string output_folder;
  std::string peers;
  bool overwrite = false;
  Options options(
      "report",
      "writes tables, plots and one page (index.html) from a folder of records, or of a "
      "training run");
  options.add(
      "input-dir", folders,
      {.aliases = {"dir"},
       .help = "the folder that holds *_result.json, or metrics.jsonl of a training run; two "
               "folders of records show what changed from the first to the second, several of "
               "training runs stand side by side",
       .positional = true,
       .required = true,
       .value = "DIR"});
  options.add(
      "output-dir", output_folder,
      {.help = "where the report goes; by default that folder, and of several folders only the "
               "terminal",
       .value = "DIR"});
  options.add("with", peers,
              {.help = "measurements of other software, shown beside the cost of privacy: a JSON "
                       "array, or one object per line (docs/reading-results.md)",
               .value = "FILE"});
  add_overwrite_option(options, overwrite);
  if (!options.parse_call(call)) return kExitDone;

  if (folders.size() > 1 && std::any_of(folders.begin(), folders.end(), holds_training)) {
    if (!peers.empty()) user_error("--with {}: it is for one folder of a suite's records", peers);
    compare_trainings(folders, output_folder, overwrite);
    return kExitDone;
  }
  if (folders.size() > 2)
    user_error("{} folders: a report is of one, of two to compare, or of training runs",
               folders.size());
  const bool audits = folders.size() == 1 && holds_audits(folders[0]),
             training = folders.size() == 1 && holds_training(folders[0]);
  if (!peers.empty() && (folders.size() == 2 || audits || training))
    user_error("--with {}: it is for one folder of a suite's records", peers);
  if (folders.size() == 2) {
    fmt::print("{}\n", write_changes(folders[0], folders[1], output_folder, overwrite));
    if (!output_folder.empty())
      fmt::print("page      {}\n", join_path(output_folder, "changes.html"));
    return kExitDone;
  }
  if (audits) {
    const std::string page = write_audit_page(folders[0], output_folder, overwrite);
    fmt::print("{}\npage      {}\n", audit_summary(read_audits(folders[0])), page);
    return kExitDone;
  }
  const ReportFiles report = training
                                 ? write_training_report(folders[0], output_folder, overwrite)
                                 : write_report(folders[0], output_folder, suite_pages(), overwrite,
                                                peers.empty() ? Peers{} : read_peers(peers));
  fmt::print("{}\n", report.summary);
  fmt::print("page      {}\n", join_path(report.output_folder, "index.html"));
  fmt::print("tables    {}\n", join_path(report.output_folder,
                                         training ? "summary.{txt,csv}" : "summary.{txt,csv,md}"));
  fmt::print("pictures  {}\n", report.pictures);
  std::fflush(stdout);
  for (const DamagedRecord& damaged : report.damaged) {
    fmt::print(stderr, "{} '{}' is left out: {}\n", colored(stderr, Color::yellow, "veil:"),
               damaged.file, damaged.reason);
  }
  say_hint(report.plots_hint);
  return kExitDone;
}

}  // namespace veil
