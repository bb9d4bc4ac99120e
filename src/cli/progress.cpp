#include "cli/progress.h"

#include <fmt/core.h>

#include "base/units.h"
#include "cli/terminal.h"

namespace veil {

Progress::Progress() : terminal_(is_terminal(stderr)) {}
Progress::~Progress() {
  clear();
}

void Progress::show(const std::string& text, int64_t done, int64_t total) {
  std::string left;
  if (done > 0 && total > done) {
    const double elapsed_s = (steady_ms() - begin_ms_) / 1000;
    left = fmt::format(", {} left",
                       format_duration(elapsed_s / static_cast<double>(done) * static_cast<double>(total - done)));
  }
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
