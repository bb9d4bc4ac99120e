// Counts with their nouns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace veil {

// "1 rank", "2 ranks"; `several` for a noun that takes more than an s: quantity(2, "batch",
// "batches").
std::string quantity(int64_t count, std::string_view one, std::string_view several = "");

}  // namespace veil
