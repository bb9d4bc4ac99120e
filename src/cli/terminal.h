// What may be done to a person's screen.
#pragma once

#include <cstdio>
#include <string>

namespace veil {

// Whether the stream is a terminal that a person looks at: not a file, not a pipe, not TERM=dumb.
bool is_terminal(std::FILE* stream);

// Columns of the terminal that the stream is, or 100.
int terminal_width(std::FILE* stream);

enum class Color { red, green, yellow, bold };
// The text in colour on a terminal, and as it is elsewhere or if NO_COLOR is set.
std::string colored(std::FILE* stream, Color color, const std::string& text);

// Text of a file or a model: on a terminal its control characters, which could take over the screen,
// are shown as \xNN; elsewhere the text is as it is.
std::string for_screen(std::FILE* stream, const std::string& text);

}  // namespace veil
