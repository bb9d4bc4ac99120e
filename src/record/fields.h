// How the structs of this folder become JSON and come back. A struct names each member and its key
// once, in a function template `fields(struct, visit)`; FieldWriter and FieldReader are the two
// visitors. What a member does not hold is not written; what a file does not hold stays empty.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace veil {

using Amounts = std::map<std::string, double>;  // bytes by category, or milliseconds by phase

// Why a record cannot be used: "'avg_time_ms' is a string, expected is a number".
struct DamagedRecordError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A double that holds a count, as an integer if it is one.
nlohmann::ordered_json whole_json(double value);
// Throws DamagedRecordError.
[[noreturn]] void wrong_type(const std::string& key, const nlohmann::ordered_json& value,
                             const char* expected);

class FieldWriter {
 public:
  using Json = nlohmann::ordered_json;
  explicit FieldWriter(Json& out) : out_(out) {}

  template <typename T>
  void operator()(const char* key, const T& member) {
    if (!is_empty(member)) out_[key] = value(member);
  }
  // The same, and empty if the condition holds: an empty list is `[]`, no number is null.
  template <typename T>
  void always_if(bool condition, const char* key, const T& member) {
    if (condition || !is_empty(member)) out_[key] = value(member);
  }
  void flag_if(bool condition, const char* key, bool member) {
    if (condition || member) out_[key] = member;
  }
  // Bytes and other counts.
  void whole(const char* key, const std::optional<double>& member) {
    if (member) out_[key] = whole_json(*member);
  }
  void whole(const char* key, const Amounts& members) {
    if (!members.empty()) out_[key] = whole_amounts(members);
  }
  void whole(const char* key, const std::map<std::string, Amounts>& members) {
    for (const auto& [name, amounts] : members) out_[key][name] = whole_amounts(amounts);
  }
  // The member divided by `unit`, under a key of its own.
  void scaled(const char* key, const std::optional<double>& member, double unit) {
    if (member) out_[key] = *member / unit;
  }
  // A key that always has this value.
  void constant(const char* key, const std::string& text) { out_[key] = text; }

 private:
  static bool is_empty(const std::string& text) { return text.empty(); }
  static bool is_empty(bool) { return false; }
  static bool is_empty(int64_t) { return false; }
  static bool is_empty(double) { return false; }
  static bool is_empty(const nlohmann::json& json) { return json.empty(); }
  static bool is_empty(const Json& json) { return json.empty(); }
  template <typename T>
  static bool is_empty(const std::optional<T>& member) {
    return !member;
  }
  template <typename T>
  static bool is_empty(const std::vector<T>& list) {
    return list.empty();
  }
  template <typename T>
  static bool is_empty(const std::map<std::string, T>& members) {
    return members.empty();
  }
  template <typename Struct>
  requires std::is_class_v<Struct>
  static bool is_empty(const Struct& member) { return value(member).empty(); }

  static Json value(const std::string& text) { return text; }
  static Json value(bool flag) { return flag; }
  static Json value(int64_t number) { return number; }
  static Json value(double number) { return std::isfinite(number) ? Json(number) : Json(); }
  static Json value(const nlohmann::json& json) { return json; }
  static Json value(const Json& json) { return json; }
  template <typename T>
  static Json value(const std::optional<T>& member) {
    return member ? value(*member) : Json();
  }
  template <typename T>
  static Json value(const std::vector<T>& list) {
    Json array = Json::array();
    for (const T& entry : list) array.push_back(value(entry));
    return array;
  }
  // Names in their own order.
  template <typename T>
  static Json value(const std::vector<std::pair<std::string, T>>& entries) {
    Json object = Json::object();
    for (const auto& [name, entry] : entries) object[name] = value(entry);
    return object;
  }
  template <typename T>
  static Json value(const std::map<std::string, T>& members) {
    Json object = Json::object();
    for (const auto& [name, member] : members) object[name] = value(member);
    return object;
  }
  template <typename Struct>
  requires std::is_class_v<Struct>
  static Json value(const Struct& member) {
    Json object = Json::object();
    FieldWriter writer(object);
    fields(const_cast<Struct&>(member), writer);
    return object;
  }
  static Json whole_amounts(const Amounts& amounts);

  Json& out_;
};

// Absent and null are "not there"; another type than the member's is a DamagedRecordError.
class FieldReader {
 public:
  using Json = nlohmann::ordered_json;
  // `source` is an object.
  explicit FieldReader(const Json& source) : source_(source) {}

  template <typename T>
  void operator()(const char* key, T& member) {
    if (const Json* const found = find(key)) read(key, *found, member);
  }
  template <typename T>
  void always_if(bool, const char* key, T& member) {
    (*this)(key, member);
  }
  void flag_if(bool, const char* key, bool& member) { (*this)(key, member); }
  template <typename T>
  void whole(const char* key, T& member) {
    (*this)(key, member);
  }
  // Only if no exact value was read before.
  void scaled(const char* key, std::optional<double>& member, double unit) {
    std::optional<double> read_value;
    (*this)(key, read_value);
    if (read_value && !member) member = *read_value * unit;
  }
  void constant(const char*, const std::string&) {}

  const Json* find(const char* key) const;

  static void read(const std::string& key, const Json& value, std::string& member);
  static void read(const std::string& key, const Json& value, bool& member);
  static void read(const std::string& key, const Json& value, int64_t& member);
  static void read(const std::string& key, const Json& value, double& member);
  static void read(const std::string& key, const Json& value, nlohmann::json& member);
  static void read(const std::string& key, const Json& value, Json& member);
  template <typename T>
  static void read(const std::string& key, const Json& value, std::optional<T>& member) {
    if (value.is_null()) return;
    T found{};
    read(key, value, found);
    member = std::move(found);
  }
  template <typename T>
  static void read(const std::string& key, const Json& value, std::vector<T>& list) {
    if (!value.is_array()) wrong_type(key, value, "an array");
    for (const Json& entry : value) {
      list.emplace_back();
      read(key, entry, list.back());
    }
  }
  template <typename T>
  static void read(const std::string& key, const Json& value,
                   std::vector<std::pair<std::string, T>>& entries) {
    if (!value.is_object()) wrong_type(key, value, "an object");
    for (const auto& [name, entry] : value.items()) {
      entries.emplace_back(name, T{});
      read(name, entry, entries.back().second);
    }
  }
  template <typename T>
  static void read(const std::string& key, const Json& value, std::map<std::string, T>& members) {
    if (!value.is_object()) wrong_type(key, value, "an object");
    for (const auto& [name, entry] : value.items()) {
      if (!entry.is_null()) read(name, entry, members[name]);
    }
  }
  template <typename Struct>
  requires std::is_class_v<Struct>
  static void read(const std::string& key, const Json& value, Struct& member) {
    if (!value.is_object()) wrong_type(key, value, "an object");
    FieldReader reader(value);
    fields(member, reader);
  }

 private:
  const Json& source_;
};

// The whole text as a JSON object. DamagedRecordError if it is none.
nlohmann::ordered_json parse_object(const std::string& text);

}  // namespace veil
