#include "verify/verify_samples.h"

#include "kernels/cross_entropy.h"
#include "kernels/random.h"

namespace veil {
namespace {

Tensor filled(const DataShape& data, int64_t count, DType compute, uint64_t seed,
              RandomDomain domain) {
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), data.dims.begin(), data.dims.end());
  if (data.classes > 0) {
    Tensor whole = empty_tensor(dims, data.dtype.value_or(at::kLong), cpu_device());
    fill_whole(whole, data.classes, seed, domain, 0);
    return whole;
  }
  Tensor numbers = empty_tensor(dims, at::kFloat, cpu_device());
  fill_normal(numbers, 1.0, seed, domain, 0);
  return numbers.to(data.dtype.value_or(compute));
}

}  // namespace

VerifySamples verify_samples(const Model& model, const ModelSource& source, int64_t count,
                             DType compute, uint64_t seed) {
  VerifySamples made;
  made.batch = {filled(model.input, count, compute, seed, RandomDomain::inputs),
                filled(model.target, count, compute, seed, RandomDomain::targets)};
  if (model.condition)
    made.batch.conditions =
        filled(*model.condition, count, compute, seed, RandomDomain::conditions);
  made.padded.assign(static_cast<size_t>(count), false);
  if (!source.config) return made;
  const int64_t tokens = made.batch.inputs.size(1), padding = source.config->padding_id;
  const bool labels = source.config->task == Task::sequence_classification;
  int64_t* ids = made.batch.inputs.data_ptr<int64_t>();
  int64_t* targets = made.batch.targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    int64_t* row = ids + i * tokens;
    for (int64_t t = 0; t < tokens && padding >= 0; ++t) {
      // padding stands at the end only
      if (row[t] == padding) row[t] = (padding + 1) % source.config->vocabulary;
    }
    if (i % 3 == 1) {  // three different tokens
      for (int64_t t = 3; t < tokens; ++t) row[t] = row[t % 3];
    }
    if (i % 3 != 2 || tokens < 3) continue;
    const int64_t real = tokens - tokens / 3;
    if (padding >= 0) {
      for (int64_t t = real; t < tokens; ++t) row[t] = padding;
    }
    if (!labels) {
      for (int64_t t = real; t < tokens; ++t) targets[i * tokens + t] = kIgnoreTarget;
      targets[i * tokens] = kIgnoreTarget;
    }
    made.padded[static_cast<size_t>(i)] = !labels || padding >= 0;
  }
  return made;
}

}  // namespace veil
