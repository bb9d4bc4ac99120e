// Norms of queries and keys between their projection and their rotation, with an explicit backward
// and reports. Part of a block, not a block itself.
#pragma once

#include "nn/attention.h"
#include "nn/norm.h"

namespace veil {

// The norms' width says what is normalised: each head by itself (width = head_dim, as in Qwen3 and
// Gemma 3), or all heads of a position as one row (as in OLMo 2).
struct HeadNorms {
  Norm query, key;

  bool exist() const { return query.exists(); }
  // joint [batch, tokens, joint width], as the projection makes it -> the same with queries and
  // keys normalised, a new tensor.
  Tensor forward(const Params& params, const Attention& attention, const Tensor& joint) const;
  // d_joint, the gradient of forward's result, becomes the gradient of `joint` in place.
  void backward(const Params& params, const Attention& attention, const Tensor& d_joint,
                const Tensor& joint, GradSink& sink) const;

  void add_shape(BlockShape& shape, int64_t batch) const;
  // The largest sum of temporaries, without forward's result.
  int64_t forward_scratch_bytes(const Attention& attention, int64_t rows, DType compute) const;
  int64_t backward_scratch_bytes(const Attention& attention, int64_t batch, int64_t tokens,
                                 DType compute, bool on_gpu) const;
};

}  // namespace veil
