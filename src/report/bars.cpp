#include "report/bars.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "report/axes.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {

namespace {

constexpr size_t kManyRows = 16;     // more records than this are thin rows in several panels
constexpr size_t kOneLine = 26;      // letters of a label that thin rows have room for
constexpr size_t kMostLetters = 30;  // of a line of a label

// The label in one line or two, broken at the blank nearest the middle.
std::vector<std::string> label_lines(const Record& record, int most_lines) {
  const std::string text = shortened(record.label, 2 * kMostLetters);
  if (text.size() <= 14 || most_lines == 1) return {shortened(text, kMostLetters)};
  const size_t middle = text.size() / 2;
  size_t best = std::string::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto far = [&](size_t at) { return at > middle ? at - middle : middle - at; };
    if (text[i] == ' ' && (best == std::string::npos || far(i) < far(best))) best = i;
  }
  if (best == std::string::npos) return {shortened(text, kMostLetters)};
  return {shortened(text.substr(0, best), kMostLetters),
          shortened(text.substr(best + 1), kMostLetters)};
}

std::string label_of(const Record& record, int most_lines) {
  const std::vector<std::string> lines = label_lines(record, most_lines);
  return lines.size() == 1 ? quoted(lines[0]) : quoted(lines[0]) + ".\"\\n\"." + quoted(lines[1]);
}

struct RowPanel {
  std::string name;
  std::vector<size_t> records;
};

// One panel; of many records one for each group that does the same work, unless every record is a
// group of its own.
std::vector<RowPanel> row_panels(const std::vector<Record>& records) {
  RowPanel whole;
  for (size_t i = 0; i < records.size(); ++i) whole.records.push_back(i);
  if (records.size() <= kManyRows) return {whole};
  std::vector<RowPanel> panels;
  for (const RecordGroup& group : comparable_groups(records)) {
    panels.push_back({group.name, {}});
    for (const Record* const record : group.records)
      panels.back().records.push_back(static_cast<size_t>(record - records.data()));
  }
  if (panels.size() < 2 || 2 * panels.size() > records.size()) return {whole};
  return panels;
}

}  // namespace

Unit bytes_unit(double largest) {
  if (largest >= static_cast<double>(kGiB)) return {static_cast<double>(kGiB), "GiB"};
  if (largest >= static_cast<double>(kMiB)) return {static_cast<double>(kMiB), "MiB"};
  return {static_cast<double>(kKiB), "KiB"};
}

std::string rows_script(const BarRows& bars, const std::vector<Record>& records) {
  const std::vector<RowPanel> panels = row_panels(records);
  const bool many = records.size() > kManyRows;
  const bool long_names = std::any_of(records.begin(), records.end(), [](const Record& record) {
    return letters(record.label) > kOneLine;
  });
  const int text_rows = many && !long_names ? 1 : 2;
  const int needed = [&] {
    size_t texts = 1;
    for (const BarRows::Row& row : bars.rows) texts = std::max(texts, row.texts.size());
    return static_cast<int>(texts) * 17 + 4;
  }();
  const int each = many ? std::min(bars.each, std::max(needed, long_names ? 36 : 24)) : bars.each;
  const int gap = panels.size() > 1 ? 2 * kLine + 6 : 0;
  const int head = panels.size() > 1 ? kLine : 0;
  const int height =
      static_cast<int>(records.size()) * each + static_cast<int>(panels.size() - 1) * gap + head;
  size_t longest = 6;
  for (const Record& record : records) {
    for (const std::string& line : label_lines(record, text_rows))
      longest = std::max(longest, letters(line));
  }
  const int left = static_cast<int>(longest) * kLetter + 8;
  const int width = kCanvasWidth - kEdge - left;
  std::string data, commands = panels.size() > 1 ? "set multiplot\n" : "";
  int top = head;
  for (size_t p = 0; p < panels.size(); ++p) {
    const RowPanel& panel = panels[p];
    const std::string block = panels.size() > 1 ? fmt::format("$figures_{}", p) : "$figures";
    std::string rows, tics, labels;
    // The axis is long enough for the texts at the ends of its bars.
    double longest_bar = 0;
    for (const size_t i : panel.records) longest_bar = std::max(longest_bar, bars.rows[i].extent);
    const double end = std::max(longest_bar, bars.axis_end.value_or(0));
    PlotAxis axis{.low = 0, .high = end > 0 ? end : 1, .pixels = width};
    for (const size_t i : panel.records) {
      for (const BarRows::EndText& text : bars.rows[i].texts) {
        const double pixels =
            std::min(0.7 * width, static_cast<double>(kLetter * (letters(text.text) + 1)));
        axis.high = std::max(axis.high, text.x / (1 - pixels / width));
      }
    }
    for (size_t k = 0; k < panel.records.size(); ++k) {
      const size_t i = panel.records[k];
      const BarRows::Row& row = bars.rows[i];
      if (!row.columns.empty()) rows += fmt::format("-{} {}\n", k, row.columns);
      tics += fmt::format("{}{} -{}", k ? ", " : "", label_of(records[i], text_rows), k);
      for (const BarRows::EndText& text : row.texts)
        labels += fmt::format("set label {} at {},{} left offset 0.6,0 textcolor rgb '{}'\n",
                              quoted(text.text), text.x, text.dy - static_cast<double>(k), kInk);
    }
    PlotAxis marked = axis;
    if (bars.axis_end)
      marked.high = *bars.axis_end,
      marked.pixels = static_cast<int>(axis.to_pixels(*bars.axis_end));
    const int count = static_cast<int>(panel.records.size());
    // A panel without a single value is empty but for its texts.
    data +=
        fmt::format("{} << EOD\n{}EOD\n", block, rows.empty() ? "0 NaN NaN NaN NaN NaN\n" : rows);
    commands +=
        fmt::format("set lmargin at {}\nset rmargin at {}\nset tmargin at {}\nset bmargin at {}\n",
                    across(left), across(kCanvasWidth - kEdge), down(top, height),
                    down(top + count * each, height));
    if (!panel.name.empty())
      labels +=
          fmt::format("set label {} at {},{} left textcolor rgb '{}'\n",
                      quoted(shortened(panel.name, 60)), across(8), down(top - 11, height), kInk);
    std::string plot = bars.plot;
    if (block != "$figures")
      for (size_t at = 0; (at = plot.find("$figures ", at)) != std::string::npos;
           at += block.size())
        plot.replace(at, 8, block);
    commands += fmt::format(
        "set xrange [0:{}]\nset yrange [-{}.5:0.5]\nset ytics ({})\n{}"
        "set grid xtics linetype 1 linewidth 0.5 linecolor rgb '{}' dashtype 3\n{}plot {}\n",
        axis.high, count - 1, tics,
        tick_command(
            'x', without_overlaps(round_ticks(marked, std::max(2, marked.pixels / 70)), marked)),
        kInk, labels, plot);
    if (panels.size() > 1) commands += "unset label\nunset object\n";
    top += count * each + gap;
  }
  if (panels.size() > 1) commands += "unset multiplot\n";
  return script(bars.name,
                {.title = bars.title,
                 .left = left,
                 .plot_height = height,
                 .legend = {bars.legend, bars.unit}},
                data, commands);
}

std::optional<Stack> memory_stack(const std::string& name, const std::string& title,
                                  const std::vector<Record>& records) {
  Stack stack{.name = name,
              .title = title,
              .spoken = "",
              .parts = {},
              .amounts = {},
              .unit = {1, ""},
              .total_text = [](double bytes) { return shown_bytes(bytes); }};
  std::vector<const Amounts*> views;
  double largest = 0;
  for (const Record& record : records) {
    stack.amounts.push_back(record.breakdown);
    views.push_back(&record.breakdown);
    double total = 0;
    std::vector<std::string> words;
    for (const auto& [category, bytes] : record.breakdown) {
      total += bytes;
      words.push_back(spaced(category) + " " + shown_bytes(bytes));
    }
    largest = std::max(largest, total);
    const std::string nothing = record.ok() ? "not recorded" : outcome_words(record);
    stack.spoken += fmt::format(
        " {}: {}.", record.label,
        words.empty() ? nothing
                      : fmt::format("{} in all, {}", shown_bytes(total), join(words, ", ")));
  }
  stack.parts = categories_of(views);
  if (stack.parts.empty()) return {};
  stack.unit = bytes_unit(largest);
  stack.unit.name += " at the peak";
  return stack;
}

std::string stacked_script(const Stack& stack, const std::vector<Record>& records) {
  BarRows bars{.name = stack.name,
               .title = stack.title,
               .unit = stack.unit.name,
               .each = stack.each,
               .axis_end = stack.axis_end,
               .plot = ""};
  for (size_t i = 0; i < records.size(); ++i) {
    double edge = 0;
    BarRows::Row row{.columns = "0"};
    for (const std::string& part : stack.parts) {
      const auto found = stack.amounts[i].find(part);
      edge += found == stack.amounts[i].end() ? 0 : std::max(0.0, found->second);
      row.columns += fmt::format(" {}", edge / stack.unit.size);
    }
    row.extent = edge / stack.unit.size;
    row.texts.push_back({row.extent, 0,
                         !stack.end_texts.empty() ? stack.end_texts[i]
                         : edge > 0               ? stack.total_text(edge)
                         : records[i].ok()        ? "not recorded"
                                                  : outcome_words(records[i])});
    bars.rows.push_back(std::move(row));
  }
  std::vector<std::string> series;
  const std::vector<std::string> colors = colors_of(stack.parts);
  for (size_t k = 0; k < stack.parts.size(); ++k) {
    series.push_back(
        fmt::format("$figures using (0.5*(${0}+${1})):1:{0}:{1}:($1-0.3):($1+0.3) with boxxyerror "
                    "linecolor rgb '{2}'",
                    k + 2, k + 3, colors[k]));
    bars.legend.push_back({colors[k], spaced(stack.parts[k])});
  }
  bars.plot = join(series, ", \\\n     ");
  return rows_script(bars, records);
}

}  // namespace veil
