// The value of one option: how it is read from text, shown and recorded.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/names.h"

namespace veil {

// What describes an option in addition to its name and its field. The field's value at the time of
// adding is its default.
struct OptionSpec {
  std::vector<std::string> aliases = {};  // other names; '-' and '_' are the same in all of them
  std::string help = "";
  std::optional<double> minimum = {}, maximum = {};  // of numbers, both allowed
  // the value of the option given without one ("flag with optional value")
  std::optional<std::string> bare = {};
  bool repeated = false;    // of a list: --x A --x B, and commas belong to the values
  bool positional = false;  // may be given without its name
  bool required = false;
  bool secret = false;        // shown and recorded as kRedacted
  std::string value = "";     // what help calls the value; "" for a name by its type
  std::string fallback = "";  // what holds if the field is empty
  // Where the default comes from, which help shows instead of a value that differs between machines.
  std::string origin = "";
};

inline constexpr const char* kRedacted = "***";

// How one value is read from text, shown and recorded, by the type of the field it is bound to.
namespace option_values {

// Each read() answers "" and sets the field, or says what is allowed and leaves the field alone.
std::string read(const std::string& text, const OptionSpec& spec, int64_t& field);
std::string read(const std::string& text, const OptionSpec& spec, int& field);
std::string read(const std::string& text, const OptionSpec& spec, double& field);
std::string read(const std::string& text, const OptionSpec& spec, bool& field);
std::string read(const std::string& text, const OptionSpec& spec, std::string& field);
std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates);

template <typename Enum>
requires std::is_enum_v<Enum> std::string read(const std::string& text, const OptionSpec&,
                                               Enum& field) {
  if (find_name(text, field)) return "";
  std::vector<std::string> allowed;
  for (const auto& entry : names(Enum{})) {
    allowed.push_back(entry.aliases.empty()
                          ? entry.name
                          : fmt::format("{} ({})", entry.name, join(entry.aliases, ", ")));
  }
  return fmt::format("allowed are {}{}", join(allowed, ", "),
                     did_you_mean(text, all_spellings<Enum>()));
}

std::string show(int64_t field);
std::string show(int field);
std::string show(double field);
std::string show(bool field);
std::string show(const std::string& field);
template <typename Enum>
requires std::is_enum_v<Enum> std::string show(Enum field) {
  return name_of(field);
}

template <typename T>
nlohmann::json record(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return name_of(field);
  } else {
    return field;
  }
}

// What help calls a value of this type: "N", "X", "TEXT", or the names of an enum.
template <typename T>
std::string kind(const OptionSpec& spec) {
  if (!spec.value.empty()) return spec.value;
  if constexpr (std::is_enum_v<T>) {
    return join(all_names<T>(), "|");
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "TEXT";
  } else if constexpr (std::is_same_v<T, double>) {
    return "X";
  } else {
    return "N";
  }
}

template <typename T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

template <typename T>
std::vector<std::string> choices() {
  if constexpr (std::is_enum_v<T>) {
    return all_names<T>();
  } else {
    return {};
  }
}

}  // namespace option_values

}  // namespace veil
