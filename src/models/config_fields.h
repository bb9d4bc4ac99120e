// Reading a model's config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace veil {

// Numbers beyond these are taken for a broken file.
inline constexpr int64_t kMostWidth = int64_t{1} << 20, kMostLayers = 4096,
                         kMostPositions = int64_t{1} << 30;

// Fields of one config.json, with errors that name it.
class ConfigFields {
 public:
  ConfigFields(const nlohmann::ordered_json& json, const std::string& where)
      : json_(json), where_(where) {}

  bool has(const char* name) const { return json_.contains(name) && !json_.at(name).is_null(); }

  // A whole number in [least, most]; `fallback` if it is absent, an error if that is
  // negative.
  int64_t whole(const char* name, int64_t least, int64_t most, int64_t fallback = -1) const {
    if (!has(name)) {
      if (fallback < 0) user_error("{}: {} is missing", where_, name);
      return fallback;
    }
    const nlohmann::ordered_json& value = json_.at(name);
    if (!value.is_number_integer())
      user_error("{}: {} is {}, a whole number is needed", where_, name, value.dump());
    const auto number = value.get<int64_t>();
    if (number < least || number > most)
      user_error("{}: {} is {}, allowed is {} to {}", where_, name, number, least, most);
    return number;
  }

  double real(const char* name, double least, double most, double fallback) const {
    if (!has(name)) return fallback;
    const nlohmann::ordered_json& value = json_.at(name);
    if (!value.is_number())
      user_error("{}: {} is {}, a number is needed", where_, name, value.dump());
    const double number = value.get<double>();
    if (!(number >= least && number <= most))
      user_error("{}: {} is {}, allowed is {} to {}", where_, name, number, least, most);
    return number;
  }

  bool flag(const char* name, bool fallback) const {
    if (!has(name)) return fallback;
    if (!json_.at(name).is_boolean())
      user_error("{}: {} is {}, true or false is needed", where_, name, json_.at(name).dump());
    return json_.at(name).get<bool>();
  }

  std::string text(const char* name) const {
    return has(name) && json_.at(name).is_string() ? json_.at(name).get<std::string>() : "";
  }

  const nlohmann::ordered_json& at(const char* name) const { return json_.at(name); }

 private:
  const nlohmann::ordered_json& json_;
  const std::string& where_;
};

}  // namespace veil
