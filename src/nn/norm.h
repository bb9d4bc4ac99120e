// Normalisation in front of a layer or behind it, with its report: RMSNorm (a weight) or LayerNorm
// (weight and bias). Part of a block, not a block itself.
#pragma once

#include "nn/block.h"
#include "nn/moments.h"

namespace veil {

struct Norm {
  ParamId weight = -1;  // -1: there is no norm in this place
  ParamId bias = -1;    // LayerNorm if there is one
  int64_t width = 0;
  double epsilon = 1e-5;
  double offset = 0;  // added to RMSNorm's weight: 1 in Gemma

  bool exists() const { return weight >= 0; }

  bool trains(const std::vector<bool>& trained) const {
    return (exists() && trained[static_cast<size_t>(weight)]) ||
           (bias >= 0 && trained[static_cast<size_t>(bias)]);
  }

  // What backward needs in addition to the input.
  struct Statistics {
    Tensor rstd, mean;  // [rows]; mean for LayerNorm only
  };
  // x [batch, tokens, width] -> normalised. With `add` (may be undefined) x + add is normalised
  // instead and written over `add`.
  Tensor forward(const Params& params, const Tensor& x, const Tensor& add,
                 Statistics& statistics) const;
  // From dy, overwritten with the input's gradient, plus `residual` if that is defined. x is
  // what was normalised.
  void backward(const Params& params, const Tensor& dy, const Tensor& x,
                const Statistics& statistics, const Tensor& residual, GradSink& sink) const;
  // Likewise, with the input's gradient written to dx (may be dy).
  void backward_into(const Params& params, const Tensor& dy, const Tensor& x,
                     const Statistics& statistics, const Tensor& residual, const Tensor& dx,
                     GradSink& sink) const;

  // The same normalised rows once more, from what was normalised.
  Tensor again(const Params& params, const Tensor& x) const;

  void add_shape(BlockShape& shape, int64_t batch) const;
  // What backward makes, reports and lets go of.
  void backward_moments(Moments& moments, BlockShape& shape, int64_t batch, int64_t tokens,
                        DType compute, bool on_gpu) const;
  int64_t statistics_bytes(int64_t rows, DType compute) const;
  int64_t backward_scratch_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu) const;
};

}  // namespace veil
