#include "privacy/norm_sink.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/sample_norm.h"
#include "kernels/tensor_arguments.h"
#include "privacy/sample_product.h"
#include "tensor/category.h"

namespace veil::privacy {
namespace {

// Entries of Gram matrices are rounded before they cancel. What that can hide of a norm is added to
// it, so that no sample is clipped too little: a last place of (sum of |a_t| |g_t|)^2.
//
// Of the last place, for each pair of tokens: two entries are rounded, each once, and what their
// sums add. A little more, because the lengths are read off rounded entries too: sums of squares,
// off by their number of terms in last places, which is below a 64th for 2^17 terms.
constexpr double kGramRounding = 2 * (1 + 1.0 / 64);

// A library's products of 16-bit numbers on a GPU are made of as many columns at a time: its tensor
// cores cut off instead of rounding (kGramTruncation), on some GPUs for every eight columns.
constexpr int64_t kLibraryColumns = 512;
constexpr double kLibraryTruncation = 2 * kLibraryColumns / 8 * 0x1p-23;

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
  ids_ = ids;
  tied_rows_.reset();
  waiting_.clear();  // of a step that was given up
}

Tensor NormSink::totals(ParamId param, int64_t first_sample, int64_t samples) const {
  return squared_.select(0, param).narrow(0, first_sample, samples);
}

// All pieces of a report share the gram matrix of its inputs. a [n, T, d], g [n, T, p].
void NormSink::add_ghost(int64_t first_sample, const Tensor& a, const Tensor& g,
                         const std::vector<launch::SamplePiece>& pieces) {
  const int64_t samples = a.size(0), tokens = a.size(1), side = std::min(options_.tile, tokens);
  const DType real = real_of(a.scalar_type());
  if (std::all_of(pieces.begin(), pieces.end(), [&](const launch::SamplePiece& piece) {
        return sample_products_can_read(a, g.narrow(2, piece.column, piece.count));
      })) {
    GramReport report{a, g, pieces, first_sample};
    if (!waiting_.empty() && (waiting_[0].a.size(0) != samples || waiting_[0].a.size(1) != tokens))
      finish();
    waiting_.push_back(std::move(report));
    if (!waits_) finish();
    return;
  }
  const Tensor work = empty_tensor({2, samples * side * side}, real, a.device());
  // The sum over all tokens of |a_t| |g_t|, squared, is at most the number of tiles on the diagonal
  // times the sum of their own squares.
  const double tiles = static_cast<double>((tokens + side - 1) / side),
               place = real == at::kDouble ? 0x1p-52 : 0x1p-23;
  const bool narrow = dtype_bytes(a.scalar_type()) < dtype_bytes(real);
  const double rounding = tiles * (kGramRounding * place + (narrow ? kLibraryTruncation : 0));
  for (int64_t t = 0; t < tokens; t += side) {
    const int64_t height = std::min(side, tokens - t);
    for (int64_t s = t; s < tokens; s += side) {
      const int64_t width = std::min(side, tokens - s);
      auto gram = [&](const Tensor& x, int64_t which) {
        Tensor out = work.select(0, which)
                         .narrow(0, 0, samples * height * width)
                         .view({samples, height, width});
        const int64_t columns = x.size(2), at_once = narrow ? kLibraryColumns : columns;
        for (int64_t k = 0; k < columns; k += at_once) {
          const Tensor part = x.narrow(2, k, std::min(at_once, columns - k));
          product_into(out, part.narrow(1, t, height), part.narrow(1, s, width).transpose(1, 2),
                       /*add=*/k > 0);
        }
        return out;
      };
      const Tensor of_a = gram(a, 0);
      for (const launch::SamplePiece& piece : pieces) {
        const Tensor of_g = gram(g.narrow(2, piece.column, piece.count), 1);
        const Tensor sums = totals(static_cast<ParamId>(piece.row), first_sample, samples);
        if (s == t) {
          add_gram_products(of_a, of_g, 1, rounding, sums);
        } else {
          add_sample_products(of_a, of_g, 2, sums);  // the matrix is symmetric
        }
      }
    }
  }
}

void NormSink::finish() {
  add_gram_norms(waiting_, kGramRounding * 0x1p-23 + kGramTruncation, squared_);
  waiting_.clear();
}

// One parameter's rows: a [n, T, d], g [n, T, p], both of one type.
void NormSink::add_tiles(ParamId id, int64_t first_sample, const Tensor& a, const Tensor& g) const {
  const int64_t samples = a.size(0), columns = a.size(2), rows = g.size(2);
  const bool flash = params_[static_cast<size_t>(id)].rule == NormRule::flash;
  const int64_t height = flash ? std::min(options_.tile, rows) : rows;
  const Tensor work =
      empty_tensor({samples * height * columns}, real_of(a.scalar_type()), a.device());
  for (int64_t r = 0; r < rows; r += height) {
    const int64_t count = std::min(height, rows - r);
    Tensor out = work.narrow(0, 0, samples * count * columns).view({samples, count, columns});
    product_into(out, g.narrow(2, r, count).transpose(1, 2), a, /*add=*/false);
    add_sample_norms(out, totals(id, first_sample, samples));
  }
}

void NormSink::linear(ReportOf of, const Tensor& a, const Tensor& g) {
  CategoryScope scope(Category::temporary);
  const Tensor factor_a = product_factor(samples_of(a)), factor_g = product_factor(samples_of(g));
  if (of.param == options_.tied_table) keep_tied_rows(of, factor_a, factor_g);
  std::vector<launch::SamplePiece> ghosts;
  for (const launch::SamplePiece& piece : pieces_of(of, factor_g.size(2), params_.size(),
                                                    [&](size_t id) { return params_[id].rows; })) {
    const auto param = static_cast<ParamId>(piece.row);
    const Tensor part = factor_g.narrow(2, piece.column, piece.count);
    if (factor_a.size(1) == 1) {
      add_outer_norms(factor_a.select(1, 0), part.select(1, 0),
                      totals(param, of.first_sample, factor_a.size(0)));
    } else if (params_[static_cast<size_t>(param)].rule == NormRule::ghost) {
      ghosts.push_back(piece);
    } else {
      add_tiles(param, of.first_sample, factor_a, part);
    }
  }
  if (!ghosts.empty()) add_ghost(of.first_sample, factor_a, factor_g, ghosts);
}

// Rows of the head's gradient at the sample's own input tokens, from a block of its rows: the sum
// over t of g[t, id_s] a[t].
void NormSink::keep_tied_rows(ReportOf of, const Tensor& a, const Tensor& g) {
  const int64_t samples = a.size(0), tokens = g.size(1), chosen = ids_.size(1);
  const DType real = real_of(a.scalar_type());
  if (!tied_rows_.defined()) {
    CategoryScope scope(Category::clip_records);
    tied_rows_ = at::zeros({ids_.size(0), chosen, a.size(2)}, a.options().dtype(real));
  }
  const int64_t side = std::min(options_.tile, chosen);
  const Tensor work = empty_tensor({samples * tokens * side}, g.scalar_type(), g.device());
  for (int64_t s = 0; s < chosen; s += side) {
    const int64_t width = std::min(side, chosen - s);
    const Tensor columns =
        work.narrow(0, 0, samples * tokens * width).view({samples, tokens, width});
    gather_columns(g, ids_.narrow(0, of.first_sample, samples).narrow(1, s, width), of.row,
                   columns);
    Tensor rows = tied_rows_.narrow(0, of.first_sample, samples).narrow(1, s, width);
    product_into(rows, columns.transpose(1, 2), a, /*add=*/true);
  }
}

// Equal tokens of a sample are one row of the table.
void NormSink::embedding(ParamId table, const Tensor& ids, const Tensor& g) {
  CategoryScope scope(Category::temporary);
  const Tensor sums = totals(table, 0, ids.size(0));
  add_embedding_norms(ids, g, params_[static_cast<size_t>(table)].rows, sums);
  if (table != options_.tied_table) return;
  VEIL_CHECK(tied_rows_.defined(), "a tied table's embedding is reported before its head");
  add_sample_products(
      tied_rows_, g.scalar_type() == tied_rows_.scalar_type() ? g : g.to(tied_rows_.scalar_type()),
      2, sums);
  tied_rows_.reset();
}

void NormSink::direct(ParamId param, const Tensor& per_sample) {
  const Tensor flat = per_sample.reshape({per_sample.size(0), -1});  // [n, elements]
  const std::vector<SampleSegment> segments =
      segments_of(param, flat.size(1), params_.size(),
                  [&](size_t id) { return params_[id].rows * params_[id].columns; });
  add_segment_norms(flat, segments, squared_);
}

int64_t norm_sink_scratch_bytes(const Report& report, const NormParam& param, int64_t tile,
                                int64_t tied_tokens, DType compute, bool on_gpu,
                                bool sample_products) {
  const int64_t samples = report.samples, tokens = report.tokens;
  const int64_t real = dtype_bytes(sum_dtype(compute));
  if (report.by == Report::By::embedding)
    return embedding_norms_scratch_bytes(samples, tokens, on_gpu);
  if (report.by == Report::By::direct)
    return sample_norms_scratch_bytes(samples, report.numel, on_gpu);
  const int64_t widened = on_gpu || dtype_bytes(compute) >= 4
                              ? 0
                              : samples * tokens * (report.columns + report.rows) * real;
  const int64_t gathered =
      samples * tokens * std::min(tile, tied_tokens) * (widened ? real : dtype_bytes(compute));
  if (tokens == 1) return widened + gathered;
  const int64_t rows = std::min(report.rows, param.rows);
  switch (param.rule) {
    case NormRule::ghost: {
      if (sample_products && sample_products_fit(compute, tokens, report.rows, report.columns))
        return widened + std::max(gathered, gram_norms_scratch_bytes(samples, tokens));
      const int64_t side = std::min(tile, tokens);
      return widened +
             std::max(gathered, 2 * samples * side * side * real +
                                    sample_norms_scratch_bytes(samples, side * side, on_gpu));
    }
    case NormRule::flash:
    case NormRule::materialize: {
      const int64_t height = param.rule == NormRule::flash ? std::min(tile, rows) : rows;
      return widened + std::max(gathered, samples * height * report.columns * real +
                                              sample_norms_scratch_bytes(
                                                  samples, height * report.columns, on_gpu));
    }
  }
  return 0;
}

}  // namespace veil::privacy
