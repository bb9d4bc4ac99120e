#include "run/config_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace veil {
namespace {

// Another value of the same type.
void change(std::string& value) {
  value += "x";
}
void change(bool& value) {
  value = !value;
}
template <typename T>
requires std::is_arithmetic_v<T>
void change(T& value) {
  value = static_cast<T>(value + 1);
}
template <typename T>
requires std::is_enum_v<T>
void change(T& value) {
  for (const auto& entry : names(T{})) {
    if (entry.value == value) continue;
    value = entry.value;
    return;
  }
}
template <typename T>
void change(std::optional<T>& value) {
  T inner = value.value_or(T{});
  change(inner);
  value = inner;
}
template <typename T>
void change(std::vector<T>& value) {
  T inner{};
  change(inner);
  value.push_back(inner);
}

std::vector<std::string> all_fields() {
  std::vector<std::string> fields;
  RunConfig config;
  visit_fields(config, [&](const char* field, const auto&) { fields.emplace_back(field); });
  return fields;
}

TEST(ConfigFields, EachHasANameOfItsOwnAndAStoredKey) {
  const std::vector<std::string> fields = all_fields();
  EXPECT_EQ(std::set<std::string>(fields.begin(), fields.end()).size(), fields.size());
  EXPECT_EQ(settings_json(RunConfig{}).size(), fields.size());
  EXPECT_EQ(stored_key("clip_norm"), "clip-norm");
}

// A nonce may be kept only if every step to come has the same bits.
TEST(ConfigFields, EveryFieldDecidesUnlessItIsNamedAsIdle) {
  for (const std::string& idle : idle_fields()) EXPECT_THAT(all_fields(), testing::Contains(idle));
  for (const std::string& name : all_fields()) {
    RunConfig config;
    const nlohmann::json before = deciding_json(config);
    visit_fields(config, [&](const std::string& field, auto& value) {
      if (field == name) change(value);
    });
    const bool idle = std::count(idle_fields().begin(), idle_fields().end(), name) > 0;
    EXPECT_EQ(deciding_json(config) == before, idle) << name;
  }
}

}  // namespace
}  // namespace veil
