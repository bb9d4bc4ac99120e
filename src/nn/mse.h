// Mean squared error: a sample's loss is the mean over its own entries.
#pragma once

#include "nn/block.h"

namespace veil {

class MeanSquaredError final : public Loss {
 public:
  explicit MeanSquaredError(int64_t width) : width_(width) {}
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

 private:
  int64_t width_;
};

}  // namespace veil
