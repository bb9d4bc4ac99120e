// A classifier's labels: what config.json calls them, and how many of them its weights have.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace veil {

inline constexpr int64_t kMostLabels = 1 << 20;

// The names that a config.json gives to its labels, in the order of their numbers. Empty if it names
// none: they are LABEL_0, LABEL_1 and so on, two are the same, or id2label is not one name for each
// number from 0.
std::vector<std::string> named_labels(const nlohmann::ordered_json& config);
// Writes id2label and label2id. The names differ from each other.
void write_label_names(const std::vector<std::string>& names, nlohmann::ordered_json& config);
std::vector<std::string> unnamed_labels(int64_t count);  // LABEL_0, LABEL_1, ...

// How many labels the classifier's head in these weights (a folder or a file) has; nothing if there
// is no head in them. `head`: the names of its parameters (LanguageFamily::classifier_head), before
// which `prefix` may stand.
std::optional<int64_t> stored_labels(const std::string& weights, const std::string& prefix,
                                     const std::vector<std::string>& head);

}  // namespace veil
