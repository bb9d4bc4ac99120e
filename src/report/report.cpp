#include "report/report.h"

#include <filesystem>

#include "base/files.h"
#include "report/dit_plots.h"
#include "report/mode_figures.h"
#include "report/page.h"
#include "report/plots.h"
#include "report/tables.h"
#include "report/verdict.h"
#include "report/zero_tables.h"

namespace veil {
namespace {

constexpr const char* kPictures = "visualizations";

}  // namespace

ReportFiles write_report(const std::string& folder, const std::string& output_folder) {
  const RecordFolder source = read_records(folder);
  ReportFiles report;
  report.output_folder = output_folder.empty() ? folder : output_folder;
  ensure_folder_writable(report.output_folder);
  // Asked to write into visualizations/ itself, as seed 000's script is, there is none below it.
  const std::filesystem::path target = std::filesystem::path(report.output_folder).lexically_normal();
  const bool inside = (target.has_filename() ? target : target.parent_path()).filename() == kPictures;
  const std::string below = inside ? "" : kPictures;
  const std::string pictures = inside ? report.output_folder : join_path(report.output_folder, kPictures);
  ensure_folder_writable(pictures);
  report.pictures = pictures;

  const Verdict verdict = judge(source);
  const std::vector<Plot> plots = make_plots(source.records);
  report.damaged = source.damaged;
  report.summary = summary_text(source, verdict);
  report.plots_hint = draw_plots(plots, pictures);
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file_atomically(join_path(report.output_folder, name), content);
    report.files.push_back(name);
  };
  write("summary.txt", report.summary);
  const bool beside_pictures =
      is_llama3_suite(source.records) || is_bottleneck_suite(source.records) || is_dit_suite(source.records);
  if (beside_pictures && !inside) write(below + "/summary.txt", report.summary);
  if (is_bottleneck_suite(source.records)) write("scaling.csv", growth_table(source.records).csv());
  write("summary.csv", summary_csv(source.records));
  if (is_zero_suite(source.records)) {
    write("comparison.csv", zero_csv(source.records));
    write("raw_metrics.json", raw_metrics(source));
  }
  write("summary.md", summary_markdown(source, verdict));
  write("index.html", make_page({.folder = source,
                                 .verdict = verdict,
                                 .plots = plots,
                                 .output_folder = report.output_folder,
                                 .pictures = pictures,
                                 .plots_hint = report.plots_hint}));
  for (const Plot& plot : plots) {
    for (const char* const ending : {".png", ".svg", ".gp"}) {
      const std::string name = (inside ? "" : below + "/") + plot.name + ending;
      if (std::filesystem::exists(join_path(report.output_folder, name))) report.files.push_back(name);
    }
  }
  return report;
}

}  // namespace veil
