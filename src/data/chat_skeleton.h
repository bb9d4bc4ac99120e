// What a chat template can write, read off its Jinja source without running it.
#pragma once

#include <string>

namespace veil::data {

inline constexpr char kWrittenByVariable = '\x01', kWrittenBeginToken = '\x02',
                      kWrittenEndToken = '\x03';

struct ChatSkeleton {
  // All text and all string constants in their order; a variable is kWrittenByVariable, and the
  // tokens that begin and end a text are the other two. Branches for tools and images are left out,
  // and so is what only conditions and error messages hold.
  std::string written;
  bool trims = false;  // a trim filter or strip() is somewhere
};
ChatSkeleton chat_skeleton(const std::string& jinja);

}  // namespace veil::data
