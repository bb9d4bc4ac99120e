#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace veil {

bool is_terminal(std::FILE* stream) {
  const char* const term = std::getenv("TERM");
  return isatty(fileno(stream)) && !(term && std::strcmp(term, "dumb") == 0);
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

}  // namespace veil
