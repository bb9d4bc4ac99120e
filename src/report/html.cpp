#include "report/html.h"

#include <fmt/core.h>

#include <cctype>

namespace veil {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string address(const std::string& relative_path) {
  std::string out = "./";
  for (const char c : relative_path) {
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("-_.~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string html_table(const Table& table, const std::string& caption) {
  const std::vector<bool> right = table.numeric_columns();
  std::string out = fmt::format(
      "<p class=\"caption\">{0}</p><div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\">"
      "<table><thead><tr>",
      escaped(caption));
  const auto style = [&](size_t column) { return right[column] ? " class=\"n\"" : ""; };
  for (size_t i = 0; i < table.header().size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", style(i), escaped(table.header()[i]));
  out += "</tr></thead><tbody>\n";
  for (const auto& cells : table.cells()) {
    out += "<tr>";
    for (size_t i = 0; i < cells.size(); ++i) {
      out += i == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", style(i), escaped(cells[i]))
                    : fmt::format("<td{}>{}</td>", style(i), escaped(cells[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

const char* const kPageStyle = R"css(
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f7f9; --line: #d9dde3; --ink: #1b1f24; --soft: #56606b;
  --plot-ink: #3c454f; --accent: #0072b2; --warn: #a34700; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171a; --card: #1d2126; --line: #363d45; --ink: #e8eaed; --soft: #a7b0ba; --plot-ink: #c3cad2;
    --accent: #56b4e9; --warn: #f0a050; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.15rem; font-weight: 600; color: var(--soft); margin: 0.2rem 0 0.6rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 0.8rem; padding-bottom: 0.3rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 0.4rem; }
p { margin: 0.4rem 0; }
a { color: var(--accent); }
.suite { color: var(--soft); font-size: 0.85rem; letter-spacing: 0.03em; }
.headline { font-size: 1.5rem; line-height: 1.35; font-weight: 650; max-width: 60rem; margin: 0 0 1.2rem; }
.lead { font-weight: 650; }
ul { padding-left: 1.15rem; margin: 0.4rem 0; max-width: 60rem; }
li { margin: 0.3rem 0; }
.caveats { border-left: 4px solid var(--warn); padding: 0.4rem 0.9rem; background: var(--card); margin: 1rem 0; max-width: 60rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(46%, 13rem), 1fr)); gap: 0.8rem; margin: 1rem 0; }
.card, figure, details.box { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem 1rem; }
.card .name { color: var(--soft); font-size: 0.85rem; }
.card .value { font-size: 1.55rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.card .who { font-size: 0.92rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; align-items: start; }
figure { margin: 0; padding: 0.8rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: 0.88rem; color: var(--soft); margin-top: 0.3rem; }
details { margin-top: 0.5rem; }
details.box { margin: 0.6rem 0; }
summary { cursor: pointer; color: var(--accent); font-size: 0.9rem; }
details.box > summary { font-size: 1rem; font-weight: 600; }
.scroll { overflow-x: auto; margin: 0.2rem 0 0.8rem; }
table { border-collapse: collapse; font-size: 0.88rem; font-variant-numeric: tabular-nums; }
.caption { color: var(--soft); font-size: 0.88rem; margin: 0.8rem 0 0; }
th, td { padding: 0.3rem 0.9rem 0.3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
td, thead th { white-space: nowrap; }
.settings td { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; min-width: 8.5rem; }
th.n, td.n { text-align: right; }
code { font: 0.85rem/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.command { display: block; background: var(--paper); border: 1px solid var(--line); border-radius: 6px; padding: 0.5rem 0.7rem; }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.85rem; }
@media (max-width: 480px) { .headline { font-size: 1.25rem; } figure { padding: 0.4rem; } .card .value { font-size: 1.3rem; } }
@media print {
  :root { --paper: #ffffff; --card: #ffffff; --line: #cccccc; --ink: #000000; --soft: #444444; --plot-ink: #222222; --accent: #000000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, .card, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 8pt; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace veil
