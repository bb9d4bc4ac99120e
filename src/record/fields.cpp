#include "record/fields.h"

#include <fmt/core.h>

#include "base/json.h"
#include "tensor/category.h"

namespace veil {

using Json = nlohmann::ordered_json;

Json whole_json(double value) {
  if (!std::isfinite(value)) return nullptr;
  const bool whole = value == std::floor(value) && std::abs(value) < 9e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

void wrong_type(const std::string& key, const Json& value, const char* expected) {
  throw DamagedRecordError(fmt::format("'{}' is {} {}, expected is {}", key,
                                       value.is_array() || value.is_object() ? "an" : "a",
                                       value.type_name(), expected));
}

// Categories in their own order, other names behind them.
Json FieldWriter::whole_amounts(const Amounts& amounts) {
  Json object = Json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto found = amounts.find(category_name(static_cast<Category>(i)));
    if (found != amounts.end()) object[found->first] = whole_json(found->second);
  }
  for (const auto& [name, amount] : amounts) object[name] = whole_json(amount);
  return object;
}

const Json* FieldReader::find(const char* key) const {
  const auto found = source_.find(key);
  return found == source_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::read(const std::string& key, const Json& value, std::string& member) {
  if (!value.is_string()) wrong_type(key, value, "a string");
  member = value.get<std::string>();
}

void FieldReader::read(const std::string& key, const Json& value, bool& member) {
  if (!value.is_boolean()) wrong_type(key, value, "true or false");
  member = value.get<bool>();
}

void FieldReader::read(const std::string& key, const Json& value, int64_t& member) {
  if (!value.is_number_integer()) wrong_type(key, value, "an integer");
  member = value.get<int64_t>();
}

void FieldReader::read(const std::string& key, const Json& value, double& member) {
  if (!value.is_number()) wrong_type(key, value, "a number");
  member = value.get<double>();
}

void FieldReader::read(const std::string& key, const Json& value, nlohmann::json& member) {
  if (!value.is_object()) wrong_type(key, value, "an object");
  member = nlohmann::json(value);
}

void FieldReader::read(const std::string& key, const Json& value, Json& member) {
  if (!value.is_object()) wrong_type(key, value, "an object");
  member = value;
}

Json parse_object(const std::string& text) {
  Json source;
  try {
    source = parse_json<Json>(text);
  } catch (const Json::parse_error& error) {
    throw DamagedRecordError(fmt::format("it is not whole JSON (byte {})", error.byte));
  } catch (const Json::exception&) {
    throw DamagedRecordError("it holds a number that is out of range");
  }
  if (!source.is_object()) throw DamagedRecordError("it holds no JSON object");
  return source;
}

}  // namespace veil
