#include "base/json.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, NestingHasALimitAndBracketsInStringsDoNotCount) {
  EXPECT_FALSE(try_json(nested(kMostJsonDepth)).is_discarded());
  EXPECT_TRUE(try_json(nested(kMostJsonDepth + 1)).is_discarded());
  EXPECT_EQ(too_deep_json(nested(kMostJsonDepth + 1)), static_cast<size_t>(kMostJsonDepth));
  EXPECT_EQ(parse_json("{\"a\": [1, {\"b\": 2}]}").at("a").at(1).at("b"), 2);
  EXPECT_THROW(parse_json(nested(1'000'000)), nlohmann::json::parse_error);
  EXPECT_THROW(parse_json<nlohmann::ordered_json>(std::string(1'000'000, '{')),
               nlohmann::ordered_json::parse_error);
  const std::string text = "\\\"" + std::string(100, '[') + "\\\\";
  EXPECT_EQ(parse_json("[\"" + text + "\"]").at(0), "\"" + std::string(100, '[') + "\\");
  // one after the other is not one in the other
  std::string wide = "[[]";
  for (int i = 0; i < 200; ++i) wide += ",[]";
  EXPECT_EQ(parse_json(wide + "]").size(), 201u);
}

}  // namespace
}  // namespace veil
