#include "report/bars.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/units.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {

const std::vector<std::string> kOkabeIto = {"#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9",
                                            "#CC79A7", "#F0E442", "#AAAAAA", "#666666"};

namespace {

// The label in one line or two, broken at the blank nearest the middle.
std::vector<std::string> label_lines(const Record& record) {
  const std::string text = shortened(record.label, 46);
  if (text.size() <= 14) return {text};
  const size_t middle = text.size() / 2;
  size_t best = std::string::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto far = [&](size_t at) { return at > middle ? at - middle : middle - at; };
    if (text[i] == ' ' && (best == std::string::npos || far(i) < far(best))) best = i;
  }
  if (best == std::string::npos) return {shortened(text, 22)};
  return {shortened(text.substr(0, best), 22), shortened(text.substr(best + 1), 22)};
}

std::string label_of(const Record& record) {
  const std::vector<std::string> lines = label_lines(record);
  return lines.size() == 1 ? quoted(lines[0]) : quoted(lines[0]) + ".\"\\n\"." + quoted(lines[1]);
}

}  // namespace

std::vector<std::string> colors_of(const std::vector<std::string>& parts) {
  static const std::map<std::string, std::string> fixed = {
      {"parameters", "#0072B2"},
      {"optimizer", "#56B4E9"},
      {"gradients", "#D55E00"},
      {"activations", "#E69F00"},
      {"clip_records", "#CC79A7"},
      {"norms", "#F0E442"},
      {"temporary", "#AAAAAA"},
      {"communication", "#009E73"},
      {"data", "#666666"},
      {"forward", "#0072B2"},
      {"backward", "#E69F00"},
      {"update", "#CC79A7"},
      {"loss", "#56B4E9"},
      {"wait for gather", "#009E73"},
      {"wait for reduce", "#D55E00"},
      {"wait for copy", "#F0E442"},
      {"other", "#AAAAAA"},
      {"gap", "#666666"},
      // A private step has more phases than Okabe and Ito have colours: the others are Tol's, of
      // another lightness.
      {"first_backward", "#E69F00"},
      {"backward_and_norms", "#E69F00"},
      {"backward_and_kept_norms", "#E69F00"},
      {"second_backward", "#882255"},
      {"kept_norms", "#F0E442"},
      {"weight_grad", "#AA4499"},
      {"noise_update", "#332288"},
      {"combine_noise_update", "#332288"},
      {"combine", "#999933"},
      {"coefficients", "#DDCC77"},
      {"second_loss", "#88CCEE"},
      {"rest", "#666666"}};
  std::vector<std::string> left = kOkabeIto, colors;
  for (const std::string& part : parts) {
    if (fixed.count(part)) std::erase(left, fixed.at(part));
  }
  size_t next = 0;
  for (const std::string& part : parts) {
    colors.push_back(fixed.count(part) ? fixed.at(part)
                     : left.empty()    ? kOkabeIto[next++ % kOkabeIto.size()]
                                       : left[next++ % left.size()]);
  }
  return colors;
}

Unit bytes_unit(double largest) {
  if (largest >= static_cast<double>(kGiB)) return {static_cast<double>(kGiB), "GiB"};
  if (largest >= static_cast<double>(kMiB)) return {static_cast<double>(kMiB), "MiB"};
  return {static_cast<double>(kKiB), "KiB"};
}

std::string bar_axes(const std::vector<Record>& records, double largest, double room) {
  std::string tics;
  for (size_t i = 0; i < records.size(); ++i)
    tics += fmt::format("{}{} -{}", i ? ", " : "", label_of(records[i]), i);
  return fmt::format(
      "set xrange [0:{}]\nset yrange [-{}:0.5]\nset ytics ({})\n"
      "set grid xtics linetype 1 linewidth 0.5 linecolor rgb '{}' dashtype 3\nset xtics autofreq\n",
      largest > 0 ? largest * room : 1, static_cast<double>(records.size()) - 0.5, tics, kInk);
}

Canvas bar_canvas(const std::string& title, const std::vector<Record>& records, int each,
                  Legend legend) {
  size_t longest = 6;
  for (const Record& record : records) {
    for (const std::string& line : label_lines(record)) longest = std::max(longest, letters(line));
  }
  return {.title = title,
          .left = static_cast<int>(longest) * kLetter + 8,
          .plot_height = static_cast<int>(records.size()) * each,
          .legend = std::move(legend)};
}

std::string bar_end(double x, double y, const std::string& text) {
  return fmt::format("set label {} at {},{} left offset 0.6,0 textcolor rgb '{}'\n", quoted(text),
                     x, y, kInk);
}

std::string datablock(const std::string& rows) {
  return "$figures << EOD\n" + rows + "EOD\n";
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
  std::string rows, labels;
  double largest = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    double edge = 0;
    rows += fmt::format("-{} 0", i);
    for (const std::string& part : stack.parts) {
      const auto found = stack.amounts[i].find(part);
      edge += found == stack.amounts[i].end() ? 0 : std::max(0.0, found->second);
      rows += fmt::format(" {}", edge / stack.unit.size);
    }
    rows += "\n";
    labels += bar_end(edge / stack.unit.size, -static_cast<double>(i),
                      !stack.end_texts.empty() ? stack.end_texts[i]
                      : edge > 0               ? stack.total_text(edge)
                      : records[i].ok()        ? "not recorded"
                                               : outcome_words(records[i]));
    largest = std::max(largest, edge / stack.unit.size);
  }
  std::vector<std::string> series;
  Legend legend{{}, stack.unit.name};
  const std::vector<std::string> colors = colors_of(stack.parts);
  for (size_t k = 0; k < stack.parts.size(); ++k) {
    series.push_back(
        fmt::format("$figures using (0.5*(${0}+${1})):1:{0}:{1}:($1-0.3):($1+0.3) with boxxyerror "
                    "linecolor rgb '{2}'",
                    k + 2, k + 3, colors[k]));
    legend.entries.push_back({colors[k], spaced(stack.parts[k])});
  }
  const std::string commands = bar_axes(records, largest, stack.room) + labels + "plot " +
                               join(series, ", \\\n     ") + "\n";
  return script(stack.name, bar_canvas(stack.title, records, stack.each, legend), datablock(rows),
                commands);
}

}  // namespace veil
