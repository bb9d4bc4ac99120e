// A language model's first block: token ids to hidden states, with learned positions if there
// are any, or scaled as in Gemma.
#pragma once

#include "nn/decode.h"

namespace veil {

class Embedding final : public Block, public Decodes {
 public:
  // table [vocabulary, width]; positions [at least `tokens`, width], or -1. A `scale` other than 0
  // multiplies the table's rows, rounded to the compute type.
  Embedding(std::string name, ParamId table, ParamId positions, int64_t tokens, int64_t width,
            double scale = 0)
      : name_(std::move(name)),
        table_(table),
        positions_(positions),
        tokens_(tokens),
        width_(width),
        scale_(scale) {}
  Flow forward(const Params& params, const Flow& in, Tape& tape) const override;
  Flow recompute(const Params& params, const Flow& in, Tape& tape) const override;
  Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                bool needs_input_grad) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;

  LayerCache make_cache(int64_t, int64_t, DType, Device) const override { return {}; }
  void remember(const Params&, const Tape&, const LayerCache&) const override {}
  Tensor decode(const Params& params, const Tensor& in, const LayerCache& cache,
                const DecodeStep& step) const override;

 private:
  std::string name_;
  ParamId table_, positions_;
  int64_t tokens_, width_;
  double scale_;
};

}  // namespace veil
