// The field of a JSON object that names a user.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace veil::data {

// An object that is parsed while the fields of one name are counted: JSON allows a name twice, and
// a parser keeps the last of them.
struct CountedObject {
  nlohmann::json object;
  int64_t times = 0;  // the name among the object's own fields
};
// What the parser throws is not caught.
CountedObject parse_counting(std::string_view text, const std::string& name);

// Sets `user` and answers ""; otherwise says what is wrong. A user is a text that is not empty, or
// a whole number, which is the same user as its digits.
std::string read_user(const CountedObject& counted, const std::string& name, std::string& user);

}  // namespace veil::data
