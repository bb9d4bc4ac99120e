#include "base/units.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/error.h"

namespace veil {

std::string format_bytes(int64_t bytes) {
  const double size = std::abs(static_cast<double>(bytes));
  const double value = static_cast<double>(bytes);
  if (size >= kGiB) return fmt::format("{:.2f} GiB", value / kGiB);
  if (size >= kMiB) return fmt::format("{:.2f} MiB", value / kMiB);
  if (size >= kKiB) return fmt::format("{:.2f} KiB", value / kKiB);
  return fmt::format("{} B", bytes);
}

std::string format_ms(double ms) {
  const double size = std::abs(ms);
  const int digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  return fmt::format("{:.{}f} ms", ms, digits);
}

std::string format_duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_count(double count) {
  static constexpr std::array<std::pair<double, const char*>, 4> kSteps{
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [step, letter] : kSteps) {
    // What three digits would round up to the next letter has that letter.
    if (std::abs(count) >= 0.9995 * step) return fmt::format("{:.3g} {}", count / step, letter);
  }
  return fmt::format("{:.3g}", count);
}

std::string format_epsilon(double epsilon, int places) {
  constexpr int kDigits = 3;
  const bool tiny = epsilon > 0 && epsilon < std::pow(10, kDigits - 1 - places);
  if (tiny) places = kDigits - 1 - static_cast<int>(std::floor(std::log10(epsilon)));
  // A number of so many places that is not exact in binary stays what it is.
  const double unit = std::pow(10, places), up = std::ceil(epsilon * unit * (1 - 1e-13)) / unit;
  return tiny ? fmt::format("{:.{}g}", up, kDigits) : fmt::format("{:.{}f}", up, places);
}

std::string format_lower_epsilon(double epsilon) {
  constexpr int kPlaces = 4;
  const double unit = std::pow(10, kPlaces);
  return fmt::format("{:.{}f}", std::floor(epsilon * unit * (1 + 1e-13)) / unit, kPlaces);
}

int64_t parse_bytes(const std::string& text, const std::string& what) {
  static constexpr std::array<std::pair<const char*, double>, 8> kUnits{{{"", 1.0},
                                                                         {"b", 1.0},
                                                                         {"kib", 1024.0},
                                                                         {"mib", 1048576.0},
                                                                         {"gib", 1073741824.0},
                                                                         {"kb", 1e3},
                                                                         {"mb", 1e6},
                                                                         {"gb", 1e9}}};
  double number = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit;
  for (const char* at = rest; at != text.data() + text.size(); ++at) {
    if (*at != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  if (failed == std::errc{} && std::isfinite(number) && number >= 0) {
    for (const auto& [name, factor] : kUnits) {
      if (unit == name && number * factor < 9e18) return std::llround(number * factor);
    }
  }
  user_error("{} '{}' is not a number of bytes: write it like 4096, 64MiB, 1.5GiB or 2GB", what,
             text);
}

}  // namespace veil
