// Linear with bias, followed by ReLU: y = max(0, x W^T + b).
#pragma once

#include "nn/block.h"

namespace veil {

class LinearRelu final : public Block {
 public:
  // weight [out, in], bias [out]
  LinearRelu(std::string name, ParamId weight, ParamId bias, int64_t in, int64_t out, bool first);
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  void set_trained(const std::vector<bool>&, bool below) override { first_ = !below; }
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

 private:
  std::string name_;
  ParamId weight_, bias_;
  int64_t in_, out_;
  bool first_;
};

}  // namespace veil
