#include "models/load.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>

#include "models/family.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

WeightNames names_of(const LanguageConfig& config) {
  WeightNames rule;
  rule.prefix = family_of(config).weight_prefix;
  rule.ignored = family_of(config).ignored_weights;
  const std::vector<std::string>& head = family_of(config).language_head;
  if (config.tied && config.task == Task::causal_lm)
    rule.ignored.insert(rule.ignored.end(), head.begin(), head.end());
  return rule;
}

// Takes out of the list what matches one of the patterns, and answers it.
std::vector<std::string> take_matching(std::vector<std::string>& list,
                                       const std::vector<std::string>& patterns) {
  std::vector<std::string> taken;
  std::erase_if(list, [&](const std::string& name) {
    const bool matches = std::any_of(
        patterns.begin(), patterns.end(),
        [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; });
    if (matches) taken.push_back(name);
    return matches;
  });
  return taken;
}

std::vector<WantedTensor> wanted(const std::vector<ParamShape>& params) {
  std::vector<WantedTensor> list;
  for (const ParamShape& param : params) {
    if (!is_adapter(param.name)) list.push_back({param.name, param.dims});
  }
  return list;
}

decltype(InitialWeights::fill) filling(const std::shared_ptr<const Weights>& weights,
                                       const std::vector<ParamShape>& params,
                                       const WeightNames& rule) {
  std::vector<const StoredTensor*> stored;
  for (const ParamShape& param : params) stored.push_back(find_weight(*weights, param.name, rule));
  return [weights, stored](ParamId id, int64_t first, const Tensor& out) {
    const StoredTensor* tensor = stored[static_cast<size_t>(id)];
    if (!tensor) return false;
    constexpr int64_t kPiece = int64_t{1} << 24;  // elements on their way to a GPU
    if (!out.is_cuda()) {
      Tensor whole = out;
      read_weight(*weights, *tensor, first, whole);
      return true;
    }
    Tensor host = empty_tensor({std::min(kPiece, out.numel())}, out.scalar_type(), cpu_device());
    for (int64_t i = 0; i < out.numel(); i += kPiece) {
      Tensor piece = host.narrow(0, 0, std::min(kPiece, out.numel() - i));
      read_weight(*weights, *tensor, first + i, piece);
      out.narrow(0, i, piece.numel()).copy_(piece);
    }
    return true;
  };
}

}  // namespace

InitialWeights load_weights(const std::string& path, const LanguageConfig& config,
                            const std::vector<ParamShape>& params) {
  const auto weights = std::make_shared<Weights>(path);
  const WeightNames rule = names_of(config);
  WeightDifference difference = compare_weights(*weights, wanted(params), rule);

  InitialWeights initial;
  const LanguageFamily& family = family_of(config);
  if (config.task == Task::sequence_classification) {
    std::vector<std::string> missing = difference.missing;
    const std::vector<std::string> head = take_matching(missing, family.classifier_head);
    if (head.size() == family.classifier_head.size()) {  // all of it, or the file is unsound
      difference.missing = missing;
      for (const std::string& name : take_matching(difference.extra, family.language_head))
        initial.notices.push_back(
            fmt::format("{}: {} is dropped, a classifier has none", path, name));
      for (const std::string& name : head)
        initial.notices.push_back(
            fmt::format("{}: {} is not in it and starts at random", path, name));
      initial.random = head;
    }
  }
  expect_no_difference(*weights, difference);

  initial.fill = filling(weights, params, rule);
  initial.tensors = std::ssize(wanted(params)) - std::ssize(initial.random);
  return initial;
}

InitialWeights load_weights(const std::string& path, const std::vector<ParamShape>& params) {
  const auto weights = std::make_shared<Weights>(path);
  check_weights(*weights, wanted(params));
  return {filling(weights, params, {}), {}, std::ssize(params), {}};
}

}  // namespace veil
