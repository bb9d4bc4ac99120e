#include "models/load.h"

#include <algorithm>
#include <memory>

#include "models/family.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kScore = "score.weight";

WeightNames names_of(const LanguageConfig& config) {
  WeightNames rule;
  rule.prefix = family_of(config).weight_prefix;
  rule.ignored = family_of(config).ignored_weights;
  if (config.tied && config.task == Task::causal_lm) rule.ignored.push_back(kHead);
  return rule;
}

bool remove(std::vector<std::string>& list, const std::string& name) {
  const auto found = std::find(list.begin(), list.end(), name);
  if (found == list.end()) return false;
  list.erase(found);
  return true;
}

std::vector<WantedTensor> wanted(const std::vector<ParamShape>& params) {
  std::vector<WantedTensor> list;
  for (const ParamShape& param : params) list.push_back({param.name, param.dims});
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
  if (config.task == Task::sequence_classification && remove(difference.missing, kScore)) {
    if (remove(difference.extra, kHead))
      initial.notices.push_back(
          fmt::format("{}: {} is dropped, a classifier has none", path, kHead));
    initial.notices.push_back(
        fmt::format("{}: {} is not in it and starts at random", path, kScore));
    initial.random = {kScore};
  }
  expect_no_difference(*weights, difference);

  initial.fill = filling(weights, params, rule);
  initial.tensors = std::ssize(params) - std::ssize(initial.random);
  return initial;
}

InitialWeights load_weights(const std::string& path, const std::vector<ParamShape>& params) {
  const auto weights = std::make_shared<Weights>(path);
  check_weights(*weights, wanted(params));
  return {filling(weights, params, {}), {}, std::ssize(params), {}};
}

}  // namespace veil
