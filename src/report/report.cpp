#include "report/report.h"

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "report/drawing.h"
#include "report/page.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr const char* kPictures = "visualizations";

}  // namespace

ReportFiles write_report(const std::string& folder, const std::string& output_folder,
                         const std::vector<SuitePage>& pages, bool overwrite, const Peers& peers) {
  const RecordFolder source = read_records(folder);
  const SuitePage page = page_of(source.records, pages);
  if (!peers.empty() && !page.peer_plots)
    user_error(
        "--with: peers are shown beside records of private steps (`veil suite llama3-dp`, "
        "bottlenecks or dit-dp); '{}' has none",
        folder);
  ReportFiles report;
  report.output_folder = output_folder.empty() ? folder : output_folder;
  // No folder of this name inside a folder of this name.
  const std::filesystem::path target =
      std::filesystem::path(report.output_folder).lexically_normal();
  const bool inside =
      (target.has_filename() ? target : target.parent_path()).filename() == kPictures;
  const std::string below = inside ? "" : kPictures;
  const std::string pictures =
      inside ? report.output_folder : join_path(report.output_folder, kPictures);
  report.pictures = pictures;

  const Verdict verdict = judge(source, page);
  const std::vector<Plot> plots = make_plots(source.records, page, peers);
  report.damaged = source.damaged;
  report.summary = summary_text(source, verdict, page);
  std::vector<ReportFile> files = {{"summary.txt", report.summary}};
  if (page.summary_beside_pictures && !inside)
    files.push_back({below + "/summary.txt", report.summary});
  files.push_back({"summary.csv", summary_csv(source.records)});
  if (page.more_files) {
    for (const ReportFile& file : page.more_files(source)) files.push_back(file);
  }
  files.push_back({"summary.md", summary_markdown(source, verdict, page)});

  const auto place = [&](const std::string& name) { return join_path(report.output_folder, name); };
  for (const ReportFile& file : files) check_output_file(place(file.name), overwrite);
  check_output_file(place("index.html"), overwrite);
  check_plots(plots, pictures, overwrite);
  ensure_folder_writable(report.output_folder);
  ensure_folder_writable(pictures);
  report.plots_hint = draw_plots(plots, pictures, overwrite);
  const auto write = [&](const std::string& name, const std::string& content) {
    write_listed_file(place(name), content, overwrite);
    report.files.push_back(name);
  };
  for (const ReportFile& file : files) write(file.name, file.content);
  write("index.html", make_page({.folder = source,
                                 .suite = page,
                                 .verdict = verdict,
                                 .plots = plots,
                                 .output_folder = report.output_folder,
                                 .pictures = pictures,
                                 .plots_hint = report.plots_hint}));
  for (const Plot& plot : plots) {
    for (const char* const ending : {".png", ".svg", ".gp"}) {
      const std::string name = (inside ? "" : below + "/") + plot.name + ending;
      if (std::filesystem::exists(place(name))) report.files.push_back(name);
    }
  }
  return report;
}

}  // namespace veil
