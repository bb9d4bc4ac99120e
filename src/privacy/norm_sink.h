// Per-sample squared gradient norms, by parameter: first half of clipping. Nothing is summed over
// samples or ranks here: a sample's norm is its own.
#pragma once

#include <vector>

#include "base/names.h"
#include "kernels/sample_products.h"
#include "nn/block.h"
#include "nn/grad_sink.h"

namespace veil::privacy {

// How the norm of a product's gradient G^T A is found (T tokens, weight [p, d]):
//   materialize  the gradient itself: p d numbers per sample
//   ghost        the sum of (A A^T)(G G^T) over pairs of tokens, by symmetric tiles: T^2 pairs, two
//                tiles of memory
//   flash        tiles of G^T A, squared and dropped: a tile of memory
// One token is norm(a)^2 norm(g)^2 by any rule.
enum class NormRule { materialize, ghost, flash };
const NameTable<NormRule>& names(NormRule);

struct NormParam {
  int64_t rows = 0;     // dims[0]; reports of joined parameters are cut by it
  int64_t columns = 0;  // the other dimensions; 1 for a vector
  NormRule rule = NormRule::ghost;
};

struct NormSinkOptions {
  int64_t tile = 256;  // ghost: tokens in a tile's side. flash: rows of the weight
  // an embedding's table that is also the head's weight: its two gradients are one, so there is a
  // cross-term
  ParamId tied_table = -1;
};

class NormSink final : public GradSink {
 public:
  // `squared` fp64 [params, batch] gets the sums. Products are fp32 (fp64 for fp64 models) whatever
  // the compute type is.
  NormSink(std::vector<NormParam> params, NormSinkOptions options, Tensor squared);
  // Whether reports may wait for others of their block, with which a GPU norms them together. Who
  // reports holds on to them until finish().
  void set_waits(bool waits) { waits_ = waits; }
  void finish();
  // A new micro-batch starts; `ids` [batch, tokens] are its inputs, needed for a tied table.
  void begin_body(const Tensor& ids);
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;

 private:
  Tensor totals(ParamId param, int64_t first_sample, int64_t samples) const;
  void add_ghost(int64_t first_sample, const Tensor& a, const Tensor& g,
                 const std::vector<launch::SamplePiece>& pieces);
  void add_tiles(ParamId param, int64_t first_sample, const Tensor& a, const Tensor& g) const;
  void keep_tied_rows(ReportOf of, const Tensor& a, const Tensor& g);
  std::vector<NormParam> params_;
  NormSinkOptions options_;
  Tensor squared_;
  bool waits_ = false;
  std::vector<GramReport> waiting_;
  Tensor ids_;
  // [batch, tokens, d]: the head's gradient at each of the sample's own input tokens
  Tensor tied_rows_;
};

// The temporaries of one report. tied_tokens: inputs of a sample whose rows of a tied table are
// gathered, 0 elsewhere. sample_products: StepOptions::sample_products.
int64_t norm_sink_scratch_bytes(const Report& report, const NormParam& param, int64_t tile,
                                int64_t tied_tokens, DType compute, bool on_gpu,
                                bool sample_products);

}  // namespace veil::privacy
