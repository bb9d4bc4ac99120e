// Where the source tree and the built programs are. In a source file of its own, because only that
// one may depend on absolute paths: a compiler cache then serves every clone.
#pragma once

#include <string>

namespace veil {

const std::string& source_root();   // the checkout
const std::string& veil_program();  // the built `veil`
const std::string& failing_rank();  // a program whose ranks fail as they are told

}  // namespace veil
