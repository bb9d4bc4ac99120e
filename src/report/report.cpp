#include "report/report.h"

#include <filesystem>

#include "base/files.h"
#include "report/drawing.h"
#include "report/page.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr const char* kPictures = "visualizations";

}  // namespace

ReportFiles write_report(const std::string& folder, const std::string& output_folder,
                         const std::vector<SuitePage>& pages) {
  const RecordFolder source = read_records(folder);
  const SuitePage page = page_of(source.records, pages);
  ReportFiles report;
  report.output_folder = output_folder.empty() ? folder : output_folder;
  ensure_folder_writable(report.output_folder);
  // No folder of this name inside a folder of this name.
  const std::filesystem::path target =
      std::filesystem::path(report.output_folder).lexically_normal();
  const bool inside =
      (target.has_filename() ? target : target.parent_path()).filename() == kPictures;
  const std::string below = inside ? "" : kPictures;
  const std::string pictures =
      inside ? report.output_folder : join_path(report.output_folder, kPictures);
  ensure_folder_writable(pictures);
  report.pictures = pictures;

  const Verdict verdict = judge(source, page);
  const std::vector<Plot> plots = make_plots(source.records, page);
  report.damaged = source.damaged;
  report.summary = summary_text(source, verdict, page);
  report.plots_hint = draw_plots(plots, pictures);
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file_atomically(join_path(report.output_folder, name), content);
    report.files.push_back(name);
  };
  write("summary.txt", report.summary);
  if (page.summary_beside_pictures && !inside) write(below + "/summary.txt", report.summary);
  write("summary.csv", summary_csv(source.records));
  if (page.more_files) {
    for (const ReportFile& file : page.more_files(source)) write(file.name, file.content);
  }
  write("summary.md", summary_markdown(source, verdict, page));
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
      if (std::filesystem::exists(join_path(report.output_folder, name)))
        report.files.push_back(name);
    }
  }
  return report;
}

}  // namespace veil
