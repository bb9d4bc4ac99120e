#include "report/suite_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr size_t kMostHelped = 3;  // set-ups that ran out of memory whose remedies are listed

// A list item, wrapped and indented.
std::string wrapped(const std::string& text, size_t width) {
  std::string out, line = "- ";
  for (const std::string& word : split(text, ' ')) {
    if (line.size() > 2 && line.size() + word.size() > width) {
      out += line + "\n";
      line = "  ";
    }
    line += (line.size() > 2 ? " " : "") + word;
  }
  return out + line + "\n";
}

// Text for markdown: nothing in it can become a tag, a link or a list.
std::string markdown_words(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '\n') {
      out += ' ';
    } else {
      if (std::string_view("\\`*_[]#").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// What a set-up that ran out of memory could take instead, in the order of the record.
std::string remedy_words(const Record& record, const SuitePage& page) {
  constexpr size_t kMost = 4;
  std::vector<std::string> fitting, others;
  for (const std::string& given : record.remedies.value_or(std::vector<std::string>{})) {
    const std::string remedy = page.remedy ? page.remedy(given) : given;
    if (remedy.empty()) continue;
    (remedy.find("does not fit") == std::string::npos ? fitting : others).push_back(remedy);
  }
  std::vector<std::string>& shown = fitting.empty() ? others : fitting;
  if (shown.empty()) return "";
  const bool fit = !fitting.empty();
  if (shown.size() > kMost) shown.resize(kMost);
  return fmt::format("Instead of {}, {}: {}.", record.label,
                     fit ? "try" : "these need less, and none is enough alone", join(shown, "; "));
}

}  // namespace

SuitePage page_of(const std::vector<Record>& records, const std::vector<SuitePage>& pages) {
  for (const SuitePage& page : pages) {
    const auto names_it = [&](const Record& record) { return record.suite == page.suite; };
    if (page.holds ? page.holds(records) : std::all_of(records.begin(), records.end(), names_it))
      return page;
  }
  return {};
}

namespace {

// What the runs themselves had to say, such as that weights are random; each notice once.
std::vector<std::string> notices_of(const std::vector<Record>& records) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;  // notice, labels
  for (const Record& record : records) {
    for (const std::string& notice : record.notices.value_or(std::vector<std::string>{})) {
      auto known = std::find_if(found.begin(), found.end(),
                                [&](const auto& entry) { return entry.first == notice; });
      if (known == found.end()) known = found.insert(found.end(), {notice, {}});
      known->second.push_back(record.label);
    }
  }
  std::vector<std::string> words;
  for (const auto& [notice, labels] : found)
    words.push_back(labels.size() == records.size() || labels.size() > 4
                        ? notice
                        : fmt::format("{}: {}", join(labels, ", "), notice));
  return words;
}

}  // namespace

Verdict judge(const RecordFolder& folder, const SuitePage& page) {
  Verdict verdict =
      page.verdict ? page.verdict(folder) : general_verdict(folder, page.plain_is_baseline);
  verdict.question = page.question;
  const std::vector<std::string> caveats = caveats_of(folder);
  verdict.caveats.insert(verdict.caveats.begin(), caveats.begin(), caveats.end());
  const std::vector<std::string> notices = notices_of(folder.records);
  verdict.caveats.insert(verdict.caveats.end(), notices.begin(), notices.end());
  size_t helped = 0;
  for (const Record& record : folder.records) {
    if (record.outcome != "oom" || helped == kMostHelped) continue;
    const std::string words = remedy_words(record, page);
    if (words.empty()) continue;
    verdict.caveats.push_back(words);
    ++helped;
  }
  return verdict;
}

std::vector<Plot> make_plots(const std::vector<Record>& records, const SuitePage& page,
                             const Peers& peers) {
  std::vector<Plot> plots;
  if (page.peer_plots) plots = page.peer_plots(records, peers);
  for (const auto& make : page.plots) {
    for (Plot& plot : make(records)) plots.push_back(std::move(plot));
  }
  return plots;
}

std::string summary_text(const RecordFolder& folder, const Verdict& verdict,
                         const SuitePage& page) {
  std::string out =
      verdict.question + "\n" + verdict.headline + "\n\n" + page.table(folder.records).text();
  if (any_modelled(folder.records)) out += fmt::format("* {}\n", kModelled);
  out += "\n";
  for (const std::string& words : verdict.findings) out += wrapped(words, 116);
  for (const std::string& words : verdict.choices) out += wrapped(words, 116);
  if (!verdict.caveats.empty()) out += "\nTo keep in mind\n";
  for (const std::string& words : verdict.caveats) out += wrapped(words, 116);
  return out;
}

std::string summary_markdown(const RecordFolder& folder, const Verdict& verdict,
                             const SuitePage& page) {
  std::vector<Record> escaped = folder.records;
  for (Record& record : escaped) {
    record.label = markdown_words(record.label);
    record.outcome = markdown_words(record.outcome);
  }
  std::string out = fmt::format("### {}\n\n**{}**\n\n{}\n", verdict.question,
                                markdown_words(verdict.headline), page.table(escaped).markdown());
  if (any_modelled(folder.records)) out += fmt::format("\\* {}\n\n", kModelled);
  for (const std::string& words : verdict.findings) out += "- " + markdown_words(words) + "\n";
  for (const std::string& words : verdict.choices) out += "- " + markdown_words(words) + "\n";
  for (const std::string& words : verdict.caveats)
    out += "- _Note:_ " + markdown_words(words) + "\n";
  return out;
}

}  // namespace veil
