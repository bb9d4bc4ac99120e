#include "models/model_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "models/weights.h"

namespace veil {

namespace fs = std::filesystem;

bool is_companion_file(const std::string& name) {
  static const std::vector<std::string> patterns = {"tokenizer.json",
                                                    "tokenizer_config.json",
                                                    "special_tokens_map.json",
                                                    "tokenizer.model*",
                                                    "added_tokens.json",
                                                    "vocab.json",
                                                    "vocab.txt",
                                                    "merges.txt",
                                                    "spiece.model",
                                                    "*.tiktoken",
                                                    "sentencepiece*.model",
                                                    "chat_template.jinja",
                                                    "chat_template.json",
                                                    "generation_config.json"};
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

std::vector<std::pair<std::string, std::string>> companion_files(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_companion_file(name) && entry.is_regular_file(error))
      files.emplace_back(name, read_file(entry.path().string()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<StoredType> stored_weights_type(const std::string& folder) {
  if (folder.empty() || !(fs::exists(fs::path(folder) / "model.safetensors") ||
                          fs::exists(fs::path(folder) / "model.safetensors.index.json")))
    return {};
  const Weights weights(folder);
  std::map<StoredType, int64_t> numbers;
  for (const std::string& name : weights.names()) {
    const StoredTensor& tensor = *weights.find(name);
    int64_t numel = 1;
    for (const int64_t dim : tensor.dims) numel *= dim;
    if (is_convertible(tensor.dtype)) numbers[tensor.dtype] += numel;
  }
  const auto most =
      std::max_element(numbers.begin(), numbers.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == numbers.end() ? std::nullopt : std::optional(most->first);
}

std::string config_dtype(StoredType type) {
  switch (type) {
    case StoredType::f64:
      return "float64";
    case StoredType::f32:
      return "float32";
    case StoredType::f16:
      return "float16";
    case StoredType::bf16:
      return "bfloat16";
    default:
      check_failed(__FILE__, __LINE__, "not reached", "weights of a type that is not written");
  }
}

}  // namespace veil
