// Small things done to text: names that people spell in several ways, and columns.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace veil {

// Lower case with '-' for '_': two spellings of a name are the same if their canonical forms are.
std::string canonical(std::string_view name);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Insertions, deletions, replacements and swaps of neighbours that make one the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate that `given` was probably meant to be, or "" if none is near.
std::string nearest(std::string_view given, const std::vector<std::string>& candidates);

// Text from a file or a server as it may appear in a message: one line, control characters as \xNN,
// cut after `limit` bytes.
std::string printable(std::string_view text, size_t limit = 160);

// Whether the whole text fits the pattern, in which each '*' stands for any characters, also none.
bool matches_pattern(std::string_view text, std::string_view pattern);

// Rows with their columns aligned, two spaces apart, one per line. Rows may differ in length.
std::string align_columns(const std::vector<std::vector<std::string>>& rows, int indent = 0);

}  // namespace veil
