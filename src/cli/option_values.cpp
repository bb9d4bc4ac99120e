#include "cli/option_values.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace veil::option_values {
namespace {

std::string allowed_range(const char* what, const OptionSpec& spec) {
  if (spec.minimum && spec.maximum)
    return fmt::format("allowed is {} from {} to {}", what, *spec.minimum, *spec.maximum);
  if (spec.minimum) return fmt::format("allowed is {} of at least {}", what, *spec.minimum);
  if (spec.maximum) return fmt::format("allowed is {} of at most {}", what, *spec.maximum);
  return fmt::format("allowed is {}", what);
}

bool in_range(double value, const OptionSpec& spec) {
  return (!spec.minimum || value >= *spec.minimum) && (!spec.maximum || value <= *spec.maximum);
}

template <typename Integer>
std::string read_integer(const std::string& text, const OptionSpec& spec, Integer& field) {
  Integer value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return fmt::format("{}, and no more than {}", allowed_range("a whole number", spec),
                       std::numeric_limits<Integer>::max());
  }
  if (error != std::errc{} || stop != end || !in_range(static_cast<double>(value), spec)) {
    return allowed_range("a whole number", spec);
  }
  field = value;
  return "";
}

}  // namespace

std::string read(const std::string& text, const OptionSpec& spec, int64_t& field) {
  return read_integer(text, spec, field);
}
std::string read(const std::string& text, const OptionSpec& spec, int& field) {
  return read_integer(text, spec, field);
}

std::string read(const std::string& text, const OptionSpec& spec, double& field) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value) || !in_range(value, spec)) {
    return allowed_range("a number", spec);
  }
  field = value;
  return "";
}

std::string read(const std::string& text, const OptionSpec&, bool& field) {
  const std::string word = canonical(text);
  const bool yes = word == "true" || word == "on" || word == "yes" || word == "1";
  const bool no = word == "false" || word == "off" || word == "no" || word == "0";
  if (!yes && !no) return "allowed are true and false";
  field = yes;
  return "";
}

std::string read(const std::string& text, const OptionSpec&, std::string& field) {
  field = text;
  return "";
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& candidates) {
  const std::string found = nearest(given, candidates);
  return found.empty() ? "" : fmt::format("; did you mean {}?", found);
}

std::string show(int64_t field) {
  return std::to_string(field);
}
std::string show(int field) {
  return std::to_string(field);
}
std::string show(double field) {
  return fmt::format("{}", field);
}
std::string show(bool field) {
  return field ? "on" : "off";
}
std::string show(const std::string& field) {
  return field;
}

}  // namespace veil::option_values
