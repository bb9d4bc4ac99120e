// A linear map with its report: part of a block, not a block itself.
#pragma once

#include "nn/block.h"

namespace veil {

// y = x W^T + b. `joined` parameters (q, k and v; gate and up) are one product; their biases are
// joined likewise.
struct Projection {
  ParamId weight = -1;
  ParamId bias = -1;  // -1: none
  int64_t in = 0, out = 0;
  int joined = 1;
  bool in_out = false;  // the weight is stored [in, out], as GPT-2's are, instead of [out, in]

  Tensor forward(const Params& params, const Tensor& x) const;  // x [..., in] -> [..., out]
  // residual + the same
  Tensor forward_add(const Params& params, const Tensor& x, const Tensor& residual) const;
  // The input's gradient: g [..., out] -> into `result` [..., in], which is contiguous.
  void input_grad(const Params& params, const Tensor& g, const Tensor& result) const;
  // Tells the sink of a [batch, tokens, in] and g [batch, tokens, out], both contiguous.
  void report(GradSink& sink, const Tensor& a, const Tensor& g) const;
  // Likewise, where g's sums over a sample's tokens are known: bias_grad [batch, out].
  void report(GradSink& sink, const Tensor& a, const Tensor& g, const Tensor& bias_grad) const;

  void add_shape(BlockShape& shape, int64_t batch, int64_t tokens) const;
  // Report::live_bytes and held_bytes of its reports; at the bias's `sums_bytes` more live, where
  // report() makes them.
  void set_moment(BlockShape& shape, int64_t live_bytes, int64_t held_bytes,
                  int64_t sums_bytes = 0) const;
  int64_t flops(int64_t rows) const { return 2 * rows * in * out; }
  int64_t report_scratch_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu) const;
};

}  // namespace veil
