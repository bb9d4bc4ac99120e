// veil report: tables, plots and one page from a folder of records.
#include "report/report.h"

#include "base/error.h"
#include "base/files.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"

namespace veil {

int run_report(const std::vector<std::string>& arguments) {
  std::string folder, output_folder;
  Options options("report", "writes tables, plots and one page (index.html) from a folder of records");
  options.add("input-dir", folder,
              {.aliases = {"dir"},
               .help = "the folder that holds *_result.json",
               .positional = true,
               .required = true,
               .value = "DIR"});
  options.add("output-dir", output_folder, {.help = "where the report goes; by default that folder", .value = "DIR"});
  if (!options.parse(arguments)) return kExitDone;

  const ReportFiles report = write_report(folder, output_folder);
  fmt::print("{}\n", report.summary);
  fmt::print("page      {}\n", join_path(report.output_folder, "index.html"));
  fmt::print("tables    {}\n", join_path(report.output_folder, "summary.{txt,csv,md}"));
  fmt::print("pictures  {}\n", join_path(report.output_folder, "visualizations/"));
  std::fflush(stdout);
  for (const DamagedRecord& damaged : report.damaged) {
    fmt::print(stderr, "{} '{}' is left out: {}\n", colored(stderr, Color::yellow, "veil:"), damaged.file,
               damaged.reason);
  }
  if (!report.plots_hint.empty())
    fmt::print(stderr, "{} {}\n", colored(stderr, Color::yellow, "veil:"), report.plots_hint);
  return kExitDone;
}

}  // namespace veil
