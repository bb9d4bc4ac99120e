#include "report/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/html.h"
#include "report/page_parts.h"
#include "report/tables.h"

namespace veil {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// Text in which `commands` are marked.
std::string with_commands(const std::string& words) {
  const std::vector<std::string> pieces = split(words, '`');
  if (pieces.size() % 2 == 0) return escaped(words);  // one that does not close
  std::string out;
  for (size_t i = 0; i < pieces.size(); ++i)
    out += i % 2 ? fmt::format("<code>{}</code>", escaped(pieces[i])) : escaped(pieces[i]);
  return out;
}

// "Time: ..." with its first word in bold.
std::string finding(const std::string& words) {
  const size_t colon = words.find(": ");
  if (colon == std::string::npos || colon > 60) return with_commands(words);
  return fmt::format("<span class=\"lead\">{}</span> {}", escaped(words.substr(0, colon + 1)),
                     with_commands(words.substr(colon + 2)));
}

std::string findings_list(const std::vector<std::string>& items) {
  std::string out = "<ul>\n";
  for (const std::string& item : items) out += "<li>" + finding(item) + "</li>\n";
  return out + "</ul>\n";
}

// Key figures of the first group; further ones are in the table.
std::vector<KeyFigure> first_figures(const RecordGroup& group, const std::string& sample) {
  const Record *fast = nullptr, *small = nullptr;
  for (const Record* const record : group.records) {
    if (compared_ms(*record) && (!fast || *compared_ms(*record) < *compared_ms(*fast)))
      fast = record;
    if (record->ok() && record->peak_memory_bytes &&
        (!small || *record->peak_memory_bytes < *small->peak_memory_bytes))
      small = record;
  }
  std::vector<KeyFigure> out;
  if (fast) out.push_back({"fastest step", shown_ms(compared_ms(*fast)), fast->label});
  if (small) out.push_back({"smallest peak", shown_bytes(small->peak_memory_bytes), small->label});
  if (fast && fast->total_batch_size && *compared_ms(*fast) > 0) {
    const double rate = static_cast<double>(*fast->total_batch_size) / (*compared_ms(*fast) / 1000);
    out.push_back({fmt::format("most {}s per second", sample), format_count(rate), fast->label});
  }
  const size_t ok = static_cast<size_t>(std::count_if(group.records.begin(), group.records.end(),
                                                      [](const Record* r) { return r->ok(); }));
  out.push_back(
      {"experiments", fmt::format("{} of {} ended well", ok, group.records.size()), group.name});
  return out;
}

std::string choice_table(const RecordGroup& group) {
  const std::vector<Choice> front = choices(group);
  if (front.size() < 2) return "";
  Table table({"memory per rank", "choose", "time per step"});
  BytesScale scale;
  for (const Choice& choice : front) scale.see(choice.bytes);
  for (const Choice& choice : front)
    table.row({scale.show(choice.bytes) + " or more", choice.record->label, format_ms(choice.ms)});
  return html_table(table,
                    "By the memory you have" + (group.name.empty() ? "" : " (" + group.name + ")"));
}

// Every leaf under its path: "gpus.0.name".
void flatten(const json& value, const std::string& path,
             std::map<std::string, std::string>& leaves) {
  if (value.is_object() || value.is_array()) {
    for (const auto& [key, below] : value.items())
      flatten(below, path.empty() ? key : path + "." + key, leaves);
    return;
  }
  std::string text = value.is_string() ? value.get<std::string>()
                     : value.is_null() ? ""
                                       : value.dump();
  if (path.ends_with("_bytes") && value.is_number()) text = format_bytes(value.get<int64_t>());
  leaves[path] = text.empty() ? "-" : text;
}

// Settings or environments side by side; what all share is listed once.
struct Comparison {
  Table differing, common;
};
Comparison compare(const std::vector<Record>& records, const std::vector<json Record::*>& sources) {
  std::vector<std::map<std::string, std::string>> all;
  std::map<std::string, std::string> keys;
  for (const Record& record : records) {
    all.emplace_back();
    for (const auto source : sources) flatten(record.*source, "", all.back());
    keys.insert(all.back().begin(), all.back().end());
  }
  std::vector<std::string> header = {"setting"};
  for (const Record& record : records) header.push_back(record.label);
  Comparison result{Table(header), Table({"setting", "value"})};
  for (const auto& [key, unused] : keys) {
    std::vector<std::string> cells = {key};
    for (const auto& one : all) cells.push_back(one.count(key) ? one.at(key) : "-");
    // Where a record was written does not describe it.
    if (key == "output" || key == "output-dir") continue;
    if (std::all_of(cells.begin() + 1, cells.end(),
                    [&](const std::string& cell) { return cell == cells[1]; })) {
      result.common.row({key, cells[1]});
    } else {
      result.differing.row(cells);
    }
  }
  return result;
}

std::string comparison_html(const Comparison& comparison, const std::string& what) {
  std::string out = "<div class=\"settings\">\n";
  if (comparison.differing.rows() > 0)
    out += html_table(comparison.differing, what + " that differ");
  if (comparison.common.rows() > 0) {
    out += fmt::format("<details><summary>{} that all share ({})</summary>{}</details>\n",
                       escaped(what), comparison.common.rows(),
                       html_table(comparison.common, what + " that all share"));
  }
  return out + "</div>\n";
}

std::string relative(const std::string& path, const std::string& from) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return absolute.lexically_relative(fs::absolute(from).lexically_normal()).generic_string();
}

std::string link(const PageSource& source, const std::string& name) {
  const std::string path = relative(join_path(source.folder.folder, name), source.output_folder);
  return fmt::format("<a href=\"{}\">{}</a>", address(path), escaped(path));
}

std::string experiment(const PageSource& source, const Record& record) {
  std::string out =
      fmt::format("<details class=\"box\"><summary>{}</summary>\n", escaped(record.label));
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("<p>{}: {}</p>\n", name, escaped(value));
  };
  line("experiment", record.experiment);
  line("outcome", outcome_words(record));
  line("message", record.message);
  line("CUDA graph", record.graph);
  if (record.notices) line("notice", join(*record.notices, " "));
  if (!record.losses.empty()) {
    std::vector<std::string> losses;
    for (const auto& loss : record.losses)
      losses.push_back(loss ? fmt::format("{:.6g}", *loss) : "no number");
    if (losses.size() > 12) losses.erase(losses.begin() + 6, losses.end() - 6);
    line(record.losses.size() > 12 ? "loss (first and last six)" : "loss", join(losses, ", "));
  }
  if (!record.command.empty())
    out += fmt::format("<p><code class=\"command\">{}</code></p>\n", escaped(record.command));
  if (!record.ranks.empty()) {
    Table ranks({"rank", "a step", "peak memory"});
    BytesScale scale;
    for (const RecordRank& rank : record.ranks) scale.see(rank.peak_memory_bytes);
    for (const RecordRank& rank : record.ranks)
      ranks.row({std::to_string(rank.rank), shown_ms(rank.avg_time_ms),
                 scale.show(rank.peak_memory_bytes)});
    out += html_table(ranks, "Ranks");
  }
  if (!record.stages.empty()) {
    Table stages({"stage", "rank", "allocated", "most so far", "host memory"});
    BytesScale device, host;
    for (const RecordStage& stage : record.stages)
      device.see(stage.max_allocated_bytes), host.see(stage.host_bytes);
    for (const RecordStage& stage : record.stages)
      stages.row({stage.stage, std::to_string(stage.rank), device.show(stage.allocated_bytes),
                  device.show(stage.max_allocated_bytes), host.show(stage.host_bytes)});
    out += html_table(stages, "Memory lines");
  }
  out += "<p>raw record: " + link(source, record.file) + "</p>\n";
  if (!record.traces.empty()) {
    out += "<p>traces:</p><ul>\n";
    for (const std::string& trace : record.traces) out += "<li>" + link(source, trace) + "</li>\n";
    out += "</ul>\n";
  }
  return out + "</details>\n";
}

}  // namespace

std::string make_page(const PageSource& source) {
  const std::vector<Record>& records = source.folder.records;
  const std::vector<RecordGroup> groups = comparable_groups(records);
  const std::string suite =
      records.front().suite.empty() ? "veil" : "veil suite " + records.front().suite;
  std::string out = page_head(suite, source.verdict.question, source.verdict.headline);
  out +=
      page_cards(source.verdict.figures.empty() ? first_figures(groups.front(), source.suite.sample)
                                                : source.verdict.figures);
  out += page_caveats(source.verdict.caveats);
  std::string by_memory;
  if (!source.verdict.choices.empty()) {
    for (RecordGroup group : groups) {
      if (source.suite.plain_is_baseline) leave_plain_out(group);
      by_memory += choice_table(group);
    }
  }
  out += page_section("What the figures say", findings_list(source.verdict.findings) + by_memory);
  out += page_section(
      "All set-ups",
      html_table(source.suite.table(records),
                 std::string("Mean step, standard deviation of single steps, and memory of "
                             "the rank that holds most") +
                     (any_modelled(records) ? std::string("; * ") + kModelled : "")));
  if (source.suite.more_tables) {
    for (const PageTable& more : source.suite.more_tables(records))
      out += page_section(more.title, html_table(more.table, more.caption));
  }
  out += page_section("Plots", page_plots(source.plots, source.pictures, source.plots_hint));
  const Table communication = communication_table(records);
  if (communication.rows() > 0)
    out += page_section(
        "Communication",
        html_table(communication, "A step's transfers; exposed is what no computing hid"));
  out += page_section("Settings", comparison_html(compare(records, {&Record::config}), "Settings"));
  out +=
      page_section("Environment",
                   comparison_html(compare(records, {&Record::build, &Record::machine}), "Facts"));
  std::string experiments;
  for (const Record& record : records) experiments += experiment(source, record);
  out += page_section("Experiments and raw records", experiments);
  return out + page_end("from " + quantity(std::ssize(records), "record"));
}

}  // namespace veil
