#include "models/classifier_labels.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "models/weights.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

// The map whose rows are the labels: it ends the head.
std::string last_map(const std::vector<std::string>& head) {
  const auto last = std::find_if(head.rbegin(), head.rend(),
                                 [](const std::string& name) { return name.ends_with(".weight"); });
  VEIL_CHECK(last != head.rend(), "a head without weights");
  return *last;
}

}  // namespace

std::vector<std::string> unnamed_labels(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(fmt::format("LABEL_{}", i));
  return names;
}

std::vector<std::string> named_labels(const Json& config) {
  const auto found = config.is_object() ? config.find("id2label") : config.end();
  if (found == config.end() || !found->is_object()) return {};
  std::vector<std::string> names(found->size());
  std::set<std::string> different;
  for (const auto& [key, name] : found->items()) {
    size_t number = 0;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (failed != std::errc() || end != key.data() + key.size() || number >= names.size() ||
        !name.is_string() || name == "" || !names[number].empty())
      return {};
    names[number] = name.get<std::string>();
    different.insert(names[number]);
  }
  if (different.size() < names.size() || names == unnamed_labels(std::ssize(names))) return {};
  return names;
}

// Members are appended, not assigned: each assignment would look through all before it.
void write_label_names(const std::vector<std::string>& names, Json& config) {
  Json::object_t by_number, by_name;
  for (size_t i = 0; i < names.size(); ++i) {
    by_number.emplace_back(std::to_string(i), names[i]);
    by_name.emplace_back(names[i], i);
  }
  config["id2label"] = std::move(by_number);
  config["label2id"] = std::move(by_name);
}

std::optional<int64_t> stored_labels(const std::string& weights, const std::string& prefix,
                                     const std::vector<std::string>& head) {
  const Weights stored(weights);
  const StoredTensor* const map = find_weight(stored, last_map(head), {.prefix = prefix});
  if (!map || map->dims.size() != 2 || map->dims[0] < 1 || map->dims[0] > kMostLabels) return {};
  return map->dims[0];
}

}  // namespace veil
