#include "privacy/norm_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "tensor/category.h"

namespace veil::privacy {
namespace {

Tensor three_dimensional(const Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(1) : x;
}

Tensor squares(const Tensor& x) {  // [n, ...] -> [n]
  return x.reshape({x.size(0), -1}).square().sum(1);
}

}  // namespace

const NameTable<NormRule>& names(NormRule) {
  static const NameTable<NormRule> table = {{NormRule::materialize, "materialize"},
                                            {NormRule::ghost, "ghost", {"input_length"}},
                                            {NormRule::flash, "flash", {"width"}}};
  return table;
}

NormSink::NormSink(std::vector<NormParam> params, NormSinkOptions options, Tensor squared)
    : params_(std::move(params)), options_(options), squared_(std::move(squared)) {
  VEIL_CHECK(options_.tile > 0, "a tile of {}", options_.tile);
}

void NormSink::begin_body(const Tensor& ids) {
  squared_.zero_();
  ids_ = ids;
  tied_rows_.reset();
}

void NormSink::add(ParamId param, int64_t first_sample, const Tensor& sums) {
  squared_.select(0, param).narrow(0, first_sample, sums.size(0)).add_(sums);
}

// One parameter's rows: a [n, T, d], g [n, T, p], both of the sums' type.
Tensor NormSink::product_norms(const NormParam& param, const Tensor& a, const Tensor& g) const {
  const int64_t tokens = a.size(1), rows = g.size(2);
  if (tokens == 1) return squares(a) * squares(g);
  Tensor total = at::zeros({a.size(0)}, a.options());
  switch (param.rule) {
    case NormRule::materialize:
      return squares(at::bmm(g.transpose(1, 2), a));
    case NormRule::flash:
      for (int64_t r = 0; r < rows; r += options_.tile)
        total += squares(at::bmm(g.narrow(2, r, std::min(options_.tile, rows - r)).transpose(1, 2), a));
      return total;
    case NormRule::ghost:
      for (int64_t t = 0; t < tokens; t += options_.tile) {
        const int64_t height = std::min(options_.tile, tokens - t);
        for (int64_t s = t; s < tokens; s += options_.tile) {
          const int64_t width = std::min(options_.tile, tokens - s);
          auto gram = [&](const Tensor& x) {
            return at::bmm(x.narrow(1, t, height), x.narrow(1, s, width).transpose(1, 2));
          };
          const Tensor both = gram(a).mul_(gram(g)).sum({1, 2});
          total += s == t ? both : both * 2;  // the matrix is symmetric
        }
      }
      return total.clamp_min_(0);  // rounding can leave it a little below
  }
  check_failed(__FILE__, __LINE__, "not reached", "a rule without a norm");
}

void NormSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  CategoryScope scope(Category::norms);
  const DType real = squared_.scalar_type();
  const Tensor wide_a = three_dimensional(a).to(real), wide_g = three_dimensional(g).to(real);
  if (of.param == options_.tied_table) keep_tied_rows(of, wide_a, wide_g);
  // A report may run on into joined parameters, and it may be of some rows only.
  ParamId param = of.param;
  int64_t row = of.row;
  for (int64_t column = 0; column < wide_g.size(2);) {
    VEIL_CHECK(param < static_cast<ParamId>(params_.size()), "a report runs on behind the last parameter");
    const int64_t count = std::min(params_[static_cast<size_t>(param)].rows - row, wide_g.size(2) - column);
    add(param, of.first_sample,
        product_norms(params_[static_cast<size_t>(param)], wide_a, wide_g.narrow(2, column, count)));
    column += count;
    ++param;
    row = 0;
  }
}

// Rows of the head's gradient at the sample's own input tokens, from a block of its rows: the sum over t of g[t, id_s] a[t].
void NormSink::keep_tied_rows(ReportOf of, const Tensor& a, const Tensor& g) {
  const int64_t samples = a.size(0), width = g.size(2);
  if (!tied_rows_.defined()) tied_rows_ = at::zeros({ids_.size(0), ids_.size(1), a.size(2)}, a.options());
  const Tensor place = ids_.narrow(0, of.first_sample, samples) - of.row;  // [n, S]
  const Tensor inside = (place >= 0).logical_and(place < width);
  const Tensor column = place.clamp(0, width - 1).unsqueeze(1).expand({samples, g.size(1), ids_.size(1)});
  const Tensor at_tokens =
      at::where(inside.unsqueeze(1), g.gather(2, column), at::zeros({}, g.options()));  // [n, T, S]
  tied_rows_.narrow(0, of.first_sample, samples).add_(at::bmm(at_tokens.transpose(1, 2), a));
}

// Equal tokens of a sample are one row: pairs of positions with the same token count together.
void NormSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  CategoryScope scope(Category::norms);
  const Tensor wide = g.to(squared_.scalar_type());
  const int64_t tokens = ids.size(1);
  Tensor total = at::zeros({ids.size(0)}, wide.options());
  for (int64_t t = 0; t < tokens; t += options_.tile) {
    const int64_t height = std::min(options_.tile, tokens - t);
    for (int64_t s = t; s < tokens; s += options_.tile) {
      const int64_t width = std::min(options_.tile, tokens - s);
      const Tensor same = ids.narrow(1, t, height).unsqueeze(2).eq(ids.narrow(1, s, width).unsqueeze(1));
      const Tensor gram = at::bmm(wide.narrow(1, t, height), wide.narrow(1, s, width).transpose(1, 2));
      const Tensor both = at::where(same, gram, at::zeros({}, gram.options())).sum({1, 2});
      total += s == t ? both : both * 2;
    }
  }
  if (table == options_.tied_table) {
    VEIL_CHECK(tied_rows_.defined(), "a tied table's embedding is reported before its head");
    total += (tied_rows_ * wide).sum({1, 2}) * 2;
  }
  add(table, 0, total);
}

void NormSink::direct(ParamId param, const Tensor& per_sample) {
  CategoryScope scope(Category::norms);
  const Tensor wide = per_sample.reshape({per_sample.size(0), -1}).to(squared_.scalar_type());  // [n, elements]
  for (int64_t column = 0; column < wide.size(1); ++param) {
    const NormParam& shape = params_[static_cast<size_t>(param)];
    const int64_t count = std::min(shape.rows * shape.columns, wide.size(1) - column);
    add(param, 0, squares(wide.narrow(1, column, count)));
    column += count;
  }
}

}  // namespace veil::privacy
