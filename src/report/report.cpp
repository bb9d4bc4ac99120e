#include "report/report.h"

#include <filesystem>

#include "base/files.h"
#include "report/dit_plots.h"
#include "report/page.h"
#include "report/plots.h"
#include "report/tables.h"
#include "report/verdict.h"
#include "report/zero_tables.h"

namespace veil {

ReportFiles write_report(const std::string& folder, const std::string& output_folder) {
  const RecordFolder source = read_records(folder);
  ReportFiles report;
  report.output_folder = output_folder.empty() ? folder : output_folder;
  ensure_folder_writable(report.output_folder);
  const std::string pictures = join_path(report.output_folder, "visualizations");
  ensure_folder_writable(pictures);

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
  if (is_dit_suite(source.records)) write("visualizations/summary.txt", report.summary);  // where seed 004 has it
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
                                 .plots_hint = report.plots_hint}));
  for (const Plot& plot : plots) {
    for (const char* const ending : {".png", ".svg", ".gp"}) {
      const std::string name = "visualizations/" + plot.name + ending;
      if (std::filesystem::exists(join_path(report.output_folder, name))) report.files.push_back(name);
    }
  }
  return report;
}

}  // namespace veil
