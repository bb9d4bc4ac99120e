// A linear map with its report, and with adapters if it has some: part of a block, not a block
// itself.
#pragma once

#include "nn/block.h"
#include "nn/moments.h"

namespace veil {

// LoRA: s B A is added to the weight, with A [rank, in] and B [out, rank]. Several parts of a
// joined projection, each with its own pair, have their A's joined: x A^T is one product.
struct Adapters {
  struct Part {
    ParamId b = -1;              // [out, rank]
    int64_t first = 0, out = 0;  // its columns of the projection's output
  };
  ParamId a = -1;  // of the first part; the others' are joined behind it
  int64_t rank = 0;
  double scale = 1;
  std::vector<Part> parts = {};

  int count() const { return static_cast<int>(parts.size()); }
  int64_t width() const { return rank * count(); }  // of all parts' x A^T together
  bool covers(int64_t columns) const {
    for (const Part& part : parts) columns -= part.out;
    return columns == 0;
  }
};

// y = x W^T + b. `joined` parameters (q, k and v; gate and up) are one product; their biases are
// joined likewise.
struct Projection {
  ParamId weight = -1;
  ParamId bias = -1;  // -1: none
  int64_t in = 0, out = 0;
  int joined = 1;
  bool in_out = false;  // the weight is stored [in, out], as GPT-2's are, instead of [out, in]
  Adapters adapters = {};
  bool trains_weight = true, trains_bias = true;

  // See Block::set_trained.
  void set_trained(const std::vector<bool>& trained);
  // Whether backward reads the input at all.
  bool reads_input() const { return trains_weight || adapters.count() > 0; }

  Tensor forward(const Params& params, const Tensor& x) const;  // x [..., in] -> [..., out]
  // residual + the same
  Tensor forward_add(const Params& params, const Tensor& x, const Tensor& residual) const;
  // s g B of all parts, [..., width]: what input_grad and report share of the adapters. Undefined
  // if there are none.
  Tensor adapter_grad(const Params& params, const Tensor& g) const;
  // The input's gradient: g [..., out] -> into `result` [..., in], which is contiguous. `narrow` is
  // adapter_grad's, made here if it is left out.
  void input_grad(const Params& params, const Tensor& g, const Tensor& result,
                  Tensor narrow = {}) const;
  // Tells the sink of a [batch, tokens, in] and g [batch, tokens, out], both contiguous. `a` may be
  // undefined if it is not read.
  void report(const Params& params, GradSink& sink, const Tensor& a, const Tensor& g,
              Tensor narrow = {}) const;
  // The same of a projection without adapters.
  void report(GradSink& sink, const Tensor& a, const Tensor& g) const;
  // Likewise, if g's sums over a sample's tokens are known: bias_grad [batch, out].
  void report(GradSink& sink, const Tensor& a, const Tensor& g, const Tensor& bias_grad) const;

  void add_shape(BlockShape& shape, int64_t batch, int64_t tokens) const;
  // Of one of the adapters' temporaries, x A^T or g B, for so many rows.
  int64_t adapter_bytes(int64_t rows, DType compute) const {
    return rows * adapters.width() * dtype_bytes(compute);
  }
  // What report() makes, passes on and lets go of. `a`, `g` and `narrow`: the block's own
  // temporaries that are reported; `narrow` is made inside if it is left out.
  void report_moments(Moments& moments, BlockShape& shape, int64_t batch, int64_t tokens,
                      DType compute, bool on_gpu, Moments::Id a, Moments::Id g,
                      Moments::Id narrow = Moments::kNone) const;
  // Report::live_bytes and held_bytes of its reports; at the bias's `sums_bytes` more live, where
  // report() makes them.
  void set_moment(BlockShape& shape, int64_t live_bytes, int64_t held_bytes,
                  int64_t sums_bytes = 0) const;
  int64_t flops(int64_t rows) const {
    int64_t numbers = in * out;
    for (const Adapters::Part& part : adapters.parts) numbers += adapters.rank * (in + part.out);
    return 2 * rows * numbers;
  }
  int64_t report_scratch_bytes(int64_t batch, int64_t tokens, DType compute, bool on_gpu) const;

 private:
  void add_adapters(const Params& params, const Tensor& x, Tensor& y, int beta) const;
  void report_bias(GradSink& sink, const Tensor& g) const;
};

}  // namespace veil
