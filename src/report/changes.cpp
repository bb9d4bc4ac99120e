#include "report/changes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/units.h"
#include "report/figures.h"
#include "report/html.h"
#include "report/tables.h"

namespace veil {
namespace {

using nlohmann::json;

// Settings and environment as flat text; what differs from run to run by itself is left out.
std::map<std::string, std::string> facts_of(const Record& record) {
  static const std::set<std::string> passing = {"output", "output-dir", "machine.host"};
  std::map<std::string, std::string> facts;
  for (const auto& [prefix, source] : {std::pair<std::string, const json*>{"", &record.config},
                                       {"build.", &record.build},
                                       {"machine.", &record.machine}}) {
    const json flat = source->is_object() ? source->flatten() : json::object();
    for (const auto& [path, value] : flat.items()) {
      std::string name = path.empty() ? path : path.substr(1);
      std::replace(name.begin(), name.end(), '/', '.');
      name = prefix + name;
      if (!passing.count(name))
        facts[name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return facts;
}

std::string with_sign(double value, const std::string& shown) {
  return value == 0 ? "0" : (value > 0 ? "+" : "-") + shown;
}

std::string share_of(double more, double before) {
  return before > 0 ? fmt::format(" ({:+.1f}%)", 100 * more / before) : "";
}

std::string verdict_of(const Change& change) {
  if (!change.more_ms())
    return change.before_outcome == change.after_outcome
               ? "-"
               : change.before_outcome + " to " + change.after_outcome;
  if (!change.noise_ms) return "noise not known";
  if (!change.beyond_noise()) return "within the noise";
  return *change.more_ms() > 0 ? "slower" : "faster";
}

}  // namespace

std::optional<double> Change::more_ms() const {
  return before_ms && after_ms ? std::optional(*after_ms - *before_ms) : std::nullopt;
}

bool Change::beyond_noise() const {
  return more_ms() && noise_ms && std::abs(*more_ms()) > *noise_ms;
}

Changes changes_between(const RecordFolder& before, const RecordFolder& after) {
  Changes changes;
  changes.before = before.folder;
  changes.after = after.folder;
  std::map<std::string, const Record*> old;
  for (const Record& record : before.records) old[record.experiment] = &record;
  std::map<std::string, std::pair<std::string, std::string>> settings;
  for (const Record& record : after.records) {
    const auto found = old.find(record.experiment);
    if (found == old.end()) {
      changes.only_after.push_back(record.label);
      continue;
    }
    const Record& was = *found->second;
    old.erase(found);
    Change change{.label = record.label,
                  .before_ms = compared_ms(was),
                  .after_ms = compared_ms(record),
                  .noise_ms = {},
                  .before_bytes = was.ok() ? was.peak_memory_bytes : std::nullopt,
                  .after_bytes = record.ok() ? record.peak_memory_bytes : std::nullopt,
                  .before_outcome = outcome_words(was),
                  .after_outcome = outcome_words(record)};
    if (was.std_time_ms && record.std_time_ms && was.times_ms.size() != 1 &&
        record.times_ms.size() != 1)
      change.noise_ms = std::hypot(*was.std_time_ms, *record.std_time_ms);
    changes.all.push_back(change);
    const auto then = facts_of(was), now = facts_of(record);
    for (const auto& facts : {then, now}) {
      for (const auto& [name, unused] : facts) {
        const auto value = [&](const auto& from) {
          return from.count(name) ? from.at(name) : std::string("-");
        };
        if (value(then) != value(now)) settings.emplace(name, std::pair(value(then), value(now)));
      }
    }
  }
  for (const auto& [unused, record] : old) changes.only_before.push_back(record->label);
  changes.settings.assign(settings.begin(), settings.end());
  if (changes.all.empty())
    user_error(
        "'{}' and '{}' have no experiment in common: a comparison is of two runs of the same suite",
        before.folder, after.folder);
  return changes;
}

Table change_table(const Changes& changes) {
  Table table({"set-up", "step before", "after", "change", "noise", "it is", "peak before",
               "peak after", "change of peak"});
  BytesScale scale;
  for (const Change& change : changes.all)
    scale.see(change.before_bytes), scale.see(change.after_bytes);
  for (const Change& change : changes.all) {
    const auto more = change.more_ms();
    const bool both = change.before_bytes && change.after_bytes;
    const double bytes = both ? *change.after_bytes - *change.before_bytes : 0;
    table.row(
        {change.label, change.before_ms ? shown_ms(change.before_ms) : change.before_outcome,
         change.after_ms ? shown_ms(change.after_ms) : change.after_outcome,
         more ? with_sign(*more, shown_ms(std::abs(*more))) + share_of(*more, *change.before_ms)
              : "-",
         shown_ms(change.noise_ms), verdict_of(change), scale.show(change.before_bytes),
         scale.show(change.after_bytes),
         both ? with_sign(bytes, scale.show(std::abs(bytes))) +
                    (bytes != 0 ? share_of(bytes, *change.before_bytes) : "")
              : "-"});
  }
  return table;
}

std::string change_headline(const Changes& changes) {
  int faster = 0, slower = 0, level = 0, smaller = 0, larger = 0;
  for (const Change& change : changes.all) {
    if (change.more_ms() && change.noise_ms)
      ++(!change.beyond_noise() ? level : *change.more_ms() < 0 ? faster : slower);
    if (change.before_bytes && change.after_bytes) {
      if (*change.after_bytes < *change.before_bytes) ++smaller;
      if (*change.after_bytes > *change.before_bytes) ++larger;
    }
  }
  return fmt::format(
      "Of {} in both runs {} became faster, {} slower, {} did not change beyond the noise; {} less "
      "memory, {} more.",
      quantity(std::ssize(changes.all), "experiment"), faster, slower, level,
      smaller == 1 ? "1 needs" : fmt::format("{} need", smaller), larger);
}

namespace {

std::string notes(const Changes& changes, const std::string& mark) {
  std::string out;
  if (!changes.only_before.empty())
    out += mark + "only before: " + join(changes.only_before, "; ") + "\n";
  if (!changes.only_after.empty())
    out += mark + "only after: " + join(changes.only_after, "; ") + "\n";
  return out;
}

Table settings_table(const Changes& changes) {
  Table table({"setting", "before", "after"});
  for (const auto& [name, values] : changes.settings)
    table.row({name, printable(values.first), printable(values.second)});
  return table;
}

constexpr const char* kNoiseWords =
    "Noise is one standard deviation of single steps, of both runs together: a change within it "
    "may be chance.";

}  // namespace

std::string change_text(const Changes& changes) {
  std::string out =
      fmt::format("before {}\nafter  {}\n{}\n\n{}\n{}\n", changes.before, changes.after,
                  change_headline(changes), change_table(changes).text(), kNoiseWords);
  out += notes(changes, "- ");
  if (!changes.settings.empty())
    out += "\nSettings and environment that differ\n" + settings_table(changes).text();
  return out;
}

std::string change_markdown(const Changes& changes) {
  std::string out = fmt::format("### What changed\n\n**{}**\n\n{}\n{}\n", change_headline(changes),
                                change_table(changes).markdown(), kNoiseWords);
  out += notes(changes, "- ");
  if (!changes.settings.empty()) out += fmt::format("\n{}", settings_table(changes).markdown());
  return out;
}

std::string change_page(const Changes& changes) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n"
      "<title>What changed</title>\n<style>{}</style>\n</head>\n<body>\n<header>\n<div "
      "class=\"suite\">veil "
      "report</div>\n"
      "<h1>What changed between two runs?</h1>\n<p class=\"headline\">{}</p>\n</header>\n<main>\n",
      kPageStyle, escaped(change_headline(changes)));
  out += fmt::format(
      "<section>\n<h2>Experiments</h2>\n<p>before: {}<br>after: "
      "{}</p>\n{}<p>{}</p>\n<p>{}</p>\n</section>\n",
      escaped(changes.before), escaped(changes.after),
      html_table(change_table(changes), "Mean step and peak of both runs"), kNoiseWords,
      escaped(notes(changes, "")));
  if (!changes.settings.empty())
    out += "<section>\n<h2>Settings and environment that differ</h2>\n" +
           html_table(settings_table(changes), "Of the first experiment in which they do") +
           "</section>\n";
  return out + "</main>\n</body>\n</html>\n";
}

std::string write_changes(const std::string& before, const std::string& after,
                          const std::string& output_folder, bool overwrite) {
  const Changes changes = changes_between(read_records(before), read_records(after));
  const std::string text = change_text(changes);
  if (output_folder.empty()) return text;
  const std::pair<const char*, std::string> files[] = {{"changes.txt", text},
                                                       {"changes.md", change_markdown(changes)},
                                                       {"changes.csv", change_table(changes).csv()},
                                                       {"changes.html", change_page(changes)}};
  for (const auto& [name, content] : files)  // all or none
    check_output_file(join_path(output_folder, name), overwrite);
  for (const auto& [name, content] : files)
    write_listed_file(join_path(output_folder, name), content, overwrite);
  return text;
}

}  // namespace veil
