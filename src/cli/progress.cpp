#include "cli/progress.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "cli/terminal.h"

namespace veil {

std::string progress_bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  const int64_t filled = total > 0 ? std::min(done, total) * kWidth / total : kWidth;
  return fmt::format("[{}{}]", std::string(static_cast<size_t>(filled), '#'),
                     std::string(static_cast<size_t>(kWidth - filled), '.'));
}

std::string LineFitter::fitted(const std::vector<LinePart>& parts, size_t columns) {
  if (columns != columns_) left_out_ = 0;
  columns_ = columns;
  while (true) {
    std::string line;
    int most = 0;
    for (const LinePart& part : parts) {
      if (left_out_ > 0 && part.dispensable >= left_out_) continue;
      line += (line.empty() ? "" : "  ") + part.text;
      most = std::max(most, part.dispensable);
    }
    if (line.size() <= columns || most == 0) return line;
    left_out_ = most;
  }
}

Progress::Progress() : terminal_(is_terminal(stderr)) {}
Progress::~Progress() {
  clear();
}

void Progress::show(const std::string& text, int64_t done, int64_t total) {
  std::optional<double> left_s;
  if (done > 0 && total > done)
    left_s = (steady_ms() - begin_ms_) / 1000 / static_cast<double>(done) *
             static_cast<double>(total - done);
  show(text, left_s);
}

void Progress::show(const std::string& text, std::optional<double> left_s) {
  const std::string left = left_s ? fmt::format(", {} left", format_duration(*left_s)) : "";
  if (terminal_) {
    fmt::print(stderr, "\r\033[K{}{}", text, left);
    std::fflush(stderr);
    shown_ = true;
  } else {
    fmt::print(stderr, "{}{}\n", text, left);
  }
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace veil
