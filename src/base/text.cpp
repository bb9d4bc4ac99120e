#include "base/text.h"

#include <algorithm>
#include <cctype>

#include "base/utf8.h"

namespace veil {

std::string canonical(std::string_view name) {
  std::string result(name);
  for (char& letter : result) {
    letter =
        letter == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string result;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) result += separator;
    result += parts[i];
  }
  return result;
}

std::string printable(std::string_view text, size_t limit) {
  size_t end = std::min(text.size(), limit);
  // A character of several bytes is not cut.
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  const std::string result = escape_controls(text.substr(0, end), /*keep_lines=*/false);
  return end < text.size() ? result + "..." : result;
}

bool matches_pattern(std::string_view text, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  text.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  // Each part between two stars is taken where it comes first: a later place leaves less for the
  // rest.
  for (size_t next = pattern.find('*'); next != std::string_view::npos; next = pattern.find('*')) {
    const size_t place = text.find(pattern.substr(0, next));
    if (place == std::string_view::npos) return false;
    text.remove_prefix(place + next);
    pattern.remove_prefix(next + 1);
  }
  return text.ends_with(pattern);
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replaced = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      cost[i][j] = std::min({replaced, cost[i - 1][j] + 1, cost[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest(std::string_view given, const std::vector<std::string>& candidates) {
  const std::string wanted = canonical(given);
  std::string best;
  // a third of the letters may be wrong
  int best_distance = 1 + static_cast<int>(wanted.size()) / 3;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(wanted, canonical(candidate));
    if (distance > best_distance || (distance == best_distance && !best.empty())) continue;
    best = candidate;
    best_distance = distance;
  }
  if (!best.empty() || wanted.size() < 3) return best;
  for (const std::string& candidate : candidates) {
    if (canonical(candidate).rfind(wanted, 0) == 0) return candidate;  // cut short
  }
  return best;
}

std::string align_columns(const std::vector<std::vector<std::string>>& rows, int indent) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string result;
  for (const auto& row : rows) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

}  // namespace veil
