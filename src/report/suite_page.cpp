#include "report/suite_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "report/tables.h"

namespace veil {
namespace {

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

}  // namespace

SuitePage page_of(const std::vector<Record>& records, const std::vector<SuitePage>& pages) {
  for (const SuitePage& page : pages) {
    const auto names_it = [&](const Record& record) { return record.suite == page.suite; };
    if (page.holds ? page.holds(records) : std::all_of(records.begin(), records.end(), names_it))
      return page;
  }
  return {};
}

Verdict judge(const RecordFolder& folder, const SuitePage& page) {
  Verdict verdict =
      page.verdict ? page.verdict(folder) : general_verdict(folder, page.plain_is_baseline);
  verdict.question = page.question;
  const std::vector<std::string> caveats = caveats_of(folder);
  verdict.caveats.insert(verdict.caveats.begin(), caveats.begin(), caveats.end());
  return verdict;
}

std::vector<Plot> make_plots(const std::vector<Record>& records, const SuitePage& page) {
  std::vector<Plot> plots;
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
