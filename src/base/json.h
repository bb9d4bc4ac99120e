// JSON that others wrote. Every text that Veil reads as JSON is parsed here, because a library that
// builds, copies and frees values by recursion would overflow the stack on deeply nested ones.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace veil {

inline constexpr int kMostJsonDepth = 64;

// Where arrays and objects nest deeper than kMostJsonDepth, outside of strings; npos if nowhere.
size_t too_deep_json(std::string_view text);

// As Json::parse. Deep nesting is a parse_error like any other.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const typename Json::parser_callback_t& callback = nullptr) {
  if (const size_t deep = too_deep_json(text); deep != std::string_view::npos)
    throw Json::parse_error::create(
        101, deep + 1,
        "arrays and objects are nested deeper than " + std::to_string(kMostJsonDepth), nullptr);
  return Json::parse(text, callback);
}

// The same without exceptions: a discarded value for what is not JSON.
template <typename Json = nlohmann::json>
Json try_json(std::string_view text) {
  if (too_deep_json(text) != std::string_view::npos) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace veil
