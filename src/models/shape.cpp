#include "models/shape.h"

namespace veil {

int64_t ModelShape::param_count() const {
  int64_t count = 0;
  for (const ParamShape& param : params) count += param.numel();
  return count;
}

int64_t ModelShape::forward_flops() const {
  int64_t flops = loss.forward_flops;
  for (const BlockShape& block : blocks) flops += block.forward_flops;
  return flops;
}

ModelShape Model::shape(int64_t batch, DType compute) const {
  ModelShape shape;
  shape.name = name;
  shape.params = params;
  for (const auto& block : blocks) shape.blocks.push_back(block->shape(batch, compute));
  shape.loss = loss->shape(batch, compute);
  shape.batch = batch;
  shape.input_dims = input_dims;
  shape.target_dims = target_dims;
  return shape;
}

}  // namespace veil
