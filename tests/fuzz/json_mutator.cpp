// How libFuzzer changes an input that is JSON, or has JSON in some of its first lines. Changed bytes
// rarely leave a text that parses, so most changes are of a value: another one takes its place, or it
// goes, or it comes twice. Half of these begin with a seed: most inputs of a corpus are refused for
// one value, and no other change in them is looked at.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "fuzz/fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using nlohmann::json;

const json& extreme_values() {
  static const json values = {0,
                              1,
                              -1,
                              0.5,
                              1e300,
                              -1e300,
                              1e-300,
                              1e15,
                              INT32_MAX,
                              int64_t{1} << 31,
                              int64_t{1} << 53,
                              (int64_t{1} << 53) + 1,
                              INT64_MAX,
                              INT64_MIN,
                              UINT64_MAX,
                              "",
                              "x",
                              json::array(),
                              json::object(),
                              true,
                              nullptr};
  return values;
}

void collect_values(json& value, std::vector<json*>& list) {
  list.push_back(&value);
  if (!value.is_structured()) return;
  for (json& member : value) collect_values(member, list);
}

void change_value(json& whole, std::minstd_rand& random) {
  std::vector<json*> values;
  collect_values(whole, values);
  const auto any = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  json& value = *values[any(values.size())];
  const json other = *values[any(values.size())];
  const json& extreme = extreme_values()[any(extreme_values().size())];
  switch (any(4)) {
    case 0:
      if (value.is_array() && !value.empty()) {
        value.erase(any(value.size()));
      } else if (value.is_object() && !value.empty()) {
        value.erase(std::next(value.begin(), static_cast<ptrdiff_t>(any(value.size()))));
      } else {
        value = extreme;
      }
      break;
    case 1:
      if (value.is_array()) {
        value.push_back(other);
      } else {
        value = other;
      }
      break;
    default:
      value = extreme;
  }
}

// A part of the text that is JSON: all of it, or one of its first lines; empty if there is none.
std::string_view some_json(std::string_view text, std::minstd_rand& random, json& value) {
  value = veil::try_json(text);
  if (!value.is_discarded()) return text;
  constexpr size_t kMostLines = 8;
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty() && lines.size() < kMostLines;) {
    const std::string_view line = veil::fuzz::take_line(rest);
    if (line.starts_with("{") || line.starts_with("[")) lines.push_back(line);
  }
  if (lines.empty()) return {};
  const std::string_view line = lines[static_cast<size_t>(random()) % lines.size()];
  value = veil::try_json(line);
  return value.is_discarded() ? std::string_view() : line;
}

std::vector<std::string>& seeds() {
  static std::vector<std::string> texts;
  return texts;
}

}  // namespace

// The seeds are in the last folder that the command line names.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  namespace fs = std::filesystem;
  int last = *count - 1;
  while (last > 0 && !fs::is_directory((*arguments)[last])) --last;
  if (last == 0) return 0;
  for (const auto& entry : fs::directory_iterator((*arguments)[last])) {
    std::ifstream file(entry.path(), std::ios::binary);
    seeds().emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(seeds().begin(), seeds().end());
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  const bool from_seed = !seeds().empty() && random() % 2 == 0;
  const std::string_view text = from_seed ? std::string_view(seeds()[random() % seeds().size()])
                                          : veil::fuzz::text_of(data, size);
  json value;
  const std::string_view part = some_json(text, random, value);
  if (part.empty()) return LLVMFuzzerMutate(data, size, most);
  const int changes = from_seed ? 1 + static_cast<int>(random() % 3) : 1;
  for (int i = 0; i < changes; ++i) change_value(value, random);
  const auto begin = static_cast<size_t>(part.data() - text.data());
  std::string changed(text.substr(0, begin));
  changed += value.dump(-1, ' ', false, json::error_handler_t::replace);
  changed += text.substr(begin + part.size());
  if (changed.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
