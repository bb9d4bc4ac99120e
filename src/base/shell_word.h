// Commands that a person pastes into a shell.
#pragma once

#include <string>
#include <string_view>

namespace veil {

// The text as one word of a shell's line: in single quotes, unless it needs none.
std::string shell_word(std::string_view text);

}  // namespace veil
