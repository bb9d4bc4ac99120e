#include "data/user_field.h"

#include "base/error.h"
#include "base/json.h"

namespace veil::data {

using nlohmann::json;

CountedObject parse_counting(std::string_view text, const std::string& name) {
  CountedObject counted;
  const auto count = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && parsed == name) ++counted.times;
    return true;
  };
  counted.object = parse_json(text, count);
  return counted;
}

std::string read_user(const CountedObject& counted, const std::string& name, std::string& user) {
  if (counted.times > 1)
    return fmt::format("the key '{}' is there {} times; a sample has one user", name,
                       counted.times);
  const auto found = counted.object.find(name);
  if (found == counted.object.end() || found->is_null())
    return fmt::format("there is no user: the key '{}' is missing", name);
  if (found->is_number_integer()) {
    user = found->dump();
    return "";
  }
  if (!found->is_string())
    return fmt::format("the user '{}' is neither a text nor a whole number", name);
  user = found->get<std::string>();
  return user.empty() ? fmt::format("the user '{}' is empty", name) : "";
}

}  // namespace veil::data
