#include "models/weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace veil {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The index's weight_map: tensor name to the name of its file.
std::vector<std::pair<std::string, std::string>> read_index(const std::string& path) {
  std::set<std::string> seen;
  const auto once = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 2 && event == json::parse_event_t::key &&
        !seen.insert(parsed.get<std::string>()).second) {
      user_error("'{}': tensor '{}' is there twice", path, printable(parsed.get<std::string>()));
    }
    return true;
  };
  json index;
  try {
    index = parse_json(read_file(path), once);
  } catch (const json::exception& error) {
    user_error("'{}' is not JSON: {}", path, printable(error.what()));
  }
  const auto map = index.find("weight_map");  // end() as well if the index is no object
  if (map == index.end() || !map->is_object())
    user_error("'{}': it has no object 'weight_map'", path);
  if (map->empty()) user_error("'{}': its weight_map names no tensor", path);
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      user_error("'{}': tensor '{}' is not mapped to a file name", path, printable(tensor));
    const auto& name = file.get_ref<const std::string&>();
    const bool plain = !name.empty() && name.find('/') == std::string::npos &&
                       name.find('\0') == std::string::npos && name.ends_with(".safetensors");
    if (!plain) {
      user_error(
          "'{}': tensor '{}' is mapped to '{}': allowed is a .safetensors file in the same folder",
          path, printable(tensor), printable(name));
    }
    result.emplace_back(tensor, name);
  }
  return result;
}

void complain_nothing_found(const std::string& folder) {
  std::error_code ignored;
  std::string hint = "`veil fetch` brings a model from a hub";
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".bin" && extension != ".pt" && extension != ".pth") continue;
    hint = fmt::format("'{}' is a pickle, which is not read: save the model as safetensors",
                       printable(entry.path().filename().string()));
  }
  user_error("'{}' has neither {} nor {}: {}", folder, kSingle, kIndex, hint);
}

std::string few(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kShown)));
  for (std::string& name : shown) name = printable(name);
  return join(shown, ", ") + (names.size() > kShown ? ", ..." : "");
}

std::string without_prefix(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

bool is_ignored(const std::string& name, const WeightNames& rule) {
  const std::string bare = without_prefix(name, rule.prefix);
  return std::any_of(rule.ignored.begin(), rule.ignored.end(), [&](const std::string& pattern) {
    return matches_pattern(bare, pattern) || matches_pattern(name, pattern);
  });
}

}  // namespace

Weights::Weights(const std::string& path) : path_(path) {
  std::error_code ignored;
  std::string file = path;
  if (fs::is_directory(path, ignored)) {
    const std::string single = join_path(path, kSingle), index = join_path(path, kIndex);
    if (fs::exists(single, ignored)) {
      file = single;
    } else if (fs::exists(index, ignored)) {
      file = index;
    } else {
      complain_nothing_found(path);
    }
  }
  if (file.ends_with(".json")) {
    open_indexed(file);
    return;
  }
  files_.emplace_back(file);
  for (const StoredTensor& tensor : files_[0].tensors()) file_of_[tensor.name] = 0;
}

void Weights::open_indexed(const std::string& index) {
  const std::string folder = fs::path(index).parent_path().string();
  std::unordered_map<std::string, size_t> opened;
  for (const auto& [tensor, file] : read_index(index)) {
    if (!opened.contains(file)) {
      const std::string shard = join_path(folder, file);
      std::error_code ignored;
      if (!fs::exists(shard, ignored)) {
        user_error("'{}' names '{}' for tensor '{}', and that file is missing", index,
                   printable(file), printable(tensor));
      }
      opened[file] = files_.size();
      files_.emplace_back(shard);
    }
    const SafetensorsFile& shard = files_[opened[file]];
    if (!shard.find(tensor)) {
      user_error("'{}' says that tensor '{}' is in '{}', and it is not", index, printable(tensor),
                 printable(file));
    }
    file_of_[tensor] = opened[file];
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const StoredTensor& tensor : files_[i].tensors()) {
      const auto found = file_of_.find(tensor.name);
      if (found == file_of_.end() || found->second != i) {
        user_error("'{}' has a tensor '{}' that the index '{}' does not look for there",
                   files_[i].path(), printable(tensor.name), index);
      }
    }
  }
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> result;
  for (const auto& [name, file] : file_of_) result.push_back(name);
  std::sort(result.begin(), result.end());
  return result;
}

const StoredTensor* Weights::find(const std::string& name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].find(name);
}

const std::byte* Weights::checked_bytes(const StoredTensor& tensor, int64_t first,
                                        int64_t count) const {
  const auto found = file_of_.find(tensor.name);
  VEIL_CHECK(found != file_of_.end(), "{} is not a tensor of {}", tensor.name, path_);
  VEIL_CHECK(
      first >= 0 && count >= 0 && first <= tensor.elements && count <= tensor.elements - first,
      "elements {} to {} of {} {}", first, first + count, tensor.name, shape_text(tensor.dims));
  const SafetensorsFile& file = files_[found->second];
  if (!is_convertible(tensor.dtype)) {
    user_error("'{}': tensor '{}' is {}: allowed are F64, F32, BF16 and F16", file.path(),
               printable(tensor.name), name_of(tensor.dtype));
  }
  return file.bytes(tensor).data();
}

void Weights::read(const StoredTensor& tensor, int64_t first, int64_t count, void* out,
                   StoredType out_type) const {
  const std::byte* const bytes = checked_bytes(tensor, first, count);
  convert_elements(bytes + first * (stored_bits(tensor.dtype) / 8), tensor.dtype, out, out_type,
                   count);
}

void Weights::read_transposed(const StoredTensor& tensor, int64_t first, int64_t count, void* out,
                              StoredType out_type) const {
  const std::byte* const bytes = checked_bytes(tensor, first, count);
  VEIL_CHECK(tensor.dims.size() == 2, "{} {} is not a matrix", tensor.name,
             shape_text(tensor.dims));
  const int64_t rows = tensor.dims[0], columns = tensor.dims[1];  // as stored
  const int64_t in_bytes = stored_bits(tensor.dtype) / 8, out_bytes = stored_bits(out_type) / 8;
  // The wanted elements lie in columns [low, high) of the stored rows; each stored row is converted
  // at once and then strewn.
  if (count == 0) return;
  const int64_t low = first / rows, high = (first + count - 1) / rows + 1;
  std::vector<std::byte> line(static_cast<size_t>((high - low) * out_bytes));
  for (int64_t row = 0; row < rows; ++row) {
    convert_elements(bytes + (row * columns + low) * in_bytes, tensor.dtype, line.data(), out_type,
                     high - low);
    for (int64_t column = low; column < high; ++column) {
      const int64_t place = column * rows + row - first;
      if (place < 0 || place >= count) continue;
      std::copy_n(line.data() + (column - low) * out_bytes, out_bytes,
                  static_cast<std::byte*>(out) + place * out_bytes);
    }
  }
}

const StoredTensor* find_weight(const Weights& weights, const std::string& name,
                                const WeightNames& rule) {
  if (const StoredTensor* const found = weights.find(name)) return found;
  if (rule.prefix.empty()) return nullptr;
  return weights.find(name.starts_with(rule.prefix) ? without_prefix(name, rule.prefix)
                                                    : rule.prefix + name);
}

WeightDifference compare_weights(const Weights& weights, const std::vector<WantedTensor>& wanted,
                                 const WeightNames& rule) {
  WeightDifference result;
  std::set<std::string> used;
  for (const WantedTensor& tensor : wanted) {
    const StoredTensor* const found = find_weight(weights, tensor.name, rule);
    if (!found) {
      result.missing.push_back(tensor.name);
      continue;
    }
    used.insert(found->name);
    if (found->dims == tensor.dims && is_convertible(found->dtype)) continue;
    result.unfit.push_back(fmt::format(
        "{} is {} {}, the model wants {}", tensor.name, name_of(found->dtype),
        shape_text(found->dims),
        found->dims == tensor.dims ? "F64, F32, BF16 or F16" : shape_text(tensor.dims)));
  }
  for (const std::string& name : weights.names()) {
    if (!used.contains(name) && !is_ignored(name, rule)) result.extra.push_back(name);
  }
  return result;
}

void expect_no_difference(const Weights& weights, const WeightDifference& difference) {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty()) parts.push_back(fmt::format("{} {}: {}", names.size(), what, few(names)));
  };
  add(difference.missing,
      difference.missing.size() == 1 ? "tensor is missing" : "tensors are missing");
  add(difference.extra,
      difference.extra.size() == 1 ? "tensor is not the model's" : "tensors are not the model's");
  add(difference.unfit,
      difference.unfit.size() == 1 ? "tensor does not fit" : "tensors do not fit");
  if (!parts.empty())
    user_error("'{}' does not hold this model: {}", weights.path(), join(parts, "; "));
}

void check_weights(const Weights& weights, const std::vector<WantedTensor>& wanted,
                   const WeightNames& rule) {
  expect_no_difference(weights, compare_weights(weights, wanted, rule));
}

}  // namespace veil
