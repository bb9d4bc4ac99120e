#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/utf8.h"

namespace veil {

bool is_terminal(std::FILE* stream) {
  const char* const term = std::getenv("TERM");
  return isatty(fileno(stream)) && !(term && std::strcmp(term, "dumb") == 0);
}

int terminal_width(std::FILE* stream) {
  constexpr int kUsual = 100;
  winsize size{};
  if (!isatty(fileno(stream)) || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0) return kUsual;
  return size.ws_col > 0 ? size.ws_col : kUsual;
}

std::string colored(std::FILE* stream, Color color, const std::string& text) {
  const char* const no_color = std::getenv("NO_COLOR");
  if (!is_terminal(stream) || (no_color && *no_color)) return text;
  switch (color) {
    case Color::red:
      return "\033[31m" + text + "\033[0m";
    case Color::green:
      return "\033[32m" + text + "\033[0m";
    case Color::yellow:
      return "\033[33m" + text + "\033[0m";
    case Color::bold:
      return "\033[1m" + text + "\033[0m";
  }
  return text;
}

std::string for_screen(std::FILE* stream, const std::string& text) {
  return isatty(fileno(stream)) ? escape_controls(text, /*keep_lines=*/true) : text;
}

}  // namespace veil
