#include "models/shape.h"

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
  shape.batch = batch;
  shape.input = input;
  shape.target = target;
  shape.condition = condition;
  return shape;
}

}  // namespace veil
