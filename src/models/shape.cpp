#include "models/shape.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace veil {

int64_t DataShape::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t DataShape::bytes(DType compute) const {
  return elements() * dtype_bytes(dtype.value_or(compute));
}

int64_t ModelShape::param_count() const {
  int64_t count = 0;
  for (const ParamShape& param : params) count += param.numel();
  return count;
}

int64_t ModelShape::trained_count() const {
  int64_t count = 0;
  for (const ParamShape& param : params) count += param.frozen ? 0 : param.numel();
  return count;
}

int64_t ModelShape::forward_flops() const {
  int64_t flops = loss.forward_flops;
  for (const BlockShape& block : blocks) flops += block.forward_flops;
  return flops;
}

int64_t ModelShape::model_flops() const {
  int64_t flops = loss.forward_flops - loss.repeated_flops;
  for (const BlockShape& block : blocks) flops += block.forward_flops - block.repeated_flops;
  return flops;
}

ModelShape Model::shape(int64_t batch, DType compute, bool on_gpu) const {
  ModelShape shape;
  shape.name = name;
  shape.params = params;
  for (const auto& block : blocks) shape.blocks.push_back(block->shape(batch, compute, on_gpu));
  shape.loss = loss->shape(batch, compute, on_gpu);
  const auto drop_frozen = [&](BlockShape& block) {
    const size_t dropped = std::erase_if(block.reports, [&](const Report& report) {
      return params[static_cast<size_t>(report.param)].frozen;
    });
    if (dropped > 0) block.passing_bytes = 0;  // it was counted with those
  };
  for (BlockShape& block : shape.blocks) drop_frozen(block);
  drop_frozen(shape.loss);
  shape.batch = batch;
  shape.input = input;
  shape.target = target;
  shape.condition = condition;
  return shape;
}

void settle_trained(Model& model) {
  std::vector<bool> trained;
  for (const ParamShape& param : model.params) trained.push_back(!param.frozen);
  bool below = false;
  for (const auto& block : model.blocks) {
    block->set_trained(trained, below);
    for (ParamId id : block->shape(1, at::kFloat, /*on_gpu=*/false).params)
      below = below || trained[static_cast<size_t>(id)];
  }
  model.loss->set_trained(trained, below);
}

void freeze(Model& model, const std::vector<std::string>& patterns, bool others,
            const std::string& called) {
  const std::string field = !called.empty() ? called : others ? "train_only" : "freeze";
  std::vector<bool> matched(model.params.size(), false);
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (size_t id = 0; id < model.params.size(); ++id) {
      if (fnmatch(pattern.c_str(), model.params[id].name.c_str(), 0) != 0) continue;
      matched[id] = any = true;
    }
    if (!any) {
      std::vector<std::string> names;
      for (const ParamShape& param : model.params) names.push_back(param.name);
      const std::string near = nearest(pattern, names);
      field_error(field, "{}: no parameter of {} is called so; {}", pattern, model.name,
                  near.empty() ? "one is " + names.front() : "did you mean " + near + "?");
    }
  }
  for (size_t id = 0; id < model.params.size(); ++id) {
    ParamShape& param = model.params[id];
    param.frozen = matched[id] != others;
    if (param.joined && param.frozen != model.params[id - 1].frozen)
      field_error(field,
                  "splits {} and {}: they are one product, and only together frozen or trained",
                  model.params[id - 1].name, param.name);
  }
  if (std::all_of(model.params.begin(), model.params.end(),
                  [](const ParamShape& param) { return param.frozen; }))
    field_error(field, "{}: nothing is left to train", join(patterns, ","));
  settle_trained(model);
}

std::vector<std::string> frozen_names(const Model& model) {
  std::vector<std::string> names;
  for (const ParamShape& param : model.params) {
    if (param.frozen) names.push_back(param.name);
  }
  return names;
}

}  // namespace veil
