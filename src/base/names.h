// One string table for each enum: what it is called in options, records and tables, and how else
// people spell it.
//
// Beside the enum stands   const NameTable<Color>& names(Color);   and everything here finds it by
//                          argument-dependent
// lookup.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace veil {

template <typename Enum>
struct EnumName {
  // A constructor, not an aggregate: GCC 12 fails on a table of aggregates whose last member is
  // left out.
  EnumName(Enum v, std::string n, std::vector<std::string> other = {})
      : value(v), name(std::move(n)), aliases(std::move(other)) {}
  Enum value;
  std::string name;                  // the canonical name
  std::vector<std::string> aliases;  // other accepted spellings
};
template <typename Enum>
using NameTable = std::vector<EnumName<Enum>>;

template <typename Enum>
std::string name_of(Enum value) {
  for (const auto& entry : names(value)) {
    if (entry.value == value) return entry.name;
  }
  VEIL_CHECK(false, "an enum value without a name: {}", static_cast<long long>(value));
}

// Whether `text` names a value, in any case and with '-' or '_'; `value` is set if it does.
template <typename Enum>
bool find_name(std::string_view text, Enum& value) {
  const std::string wanted = canonical(text);
  for (const auto& entry : names(Enum{})) {
    bool same = canonical(entry.name) == wanted;
    for (const auto& alias : entry.aliases) same = same || canonical(alias) == wanted;
    if (!same) continue;
    value = entry.value;
    return true;
  }
  return false;
}

template <typename Enum>
std::vector<std::string> all_names() {
  std::vector<std::string> result;
  for (const auto& entry : names(Enum{})) result.push_back(entry.name);
  return result;
}

// Every accepted spelling, for finding the nearest one.
template <typename Enum>
std::vector<std::string> all_spellings() {
  std::vector<std::string> result;
  for (const auto& entry : names(Enum{})) {
    result.push_back(entry.name);
    result.insert(result.end(), entry.aliases.begin(), entry.aliases.end());
  }
  return result;
}

}  // namespace veil
