// Products over samples' tokens, as clipping needs them, by the tensor cores of GPUs of compute
// capability 9.0 (H100, H200): one kernel each, without the matrices in between. Other devices go
// through products of their libraries (privacy/clipped_sink.h, privacy/norm_sink.h).
#pragma once

#include <vector>

#include "kernels/launch.h"
#include "tensor/device.h"

namespace veil {

// Whether the GPU has them; where there is no GPU, one that is planned for does.
bool gpu_has_sample_products();

// Whether they can be had of a report of `tokens` [.., columns] and [.., rows].
bool sample_products_fit(DType compute, int64_t tokens, int64_t rows, int64_t columns);
// Whether these tensors can be read as they are.
bool sample_products_can_read(const Tensor& a, const Tensor& g);
bool sample_products_can_write(const Tensor& out);

// out[r, c] = the sum over samples i of coefficients[i] times the sum over t of g[i, t, r] a[i, t,
// c]; with `add`, added to what is there. A sample whose coefficient is 0 is not read. a [n, T, d],
// g [n, T, p], coefficients fp64 [n], out fp32 [p, d].
//
// A sum is multiplied by the ratio of two coefficients before the next sample is added. It stays
// within n times the largest norm that has a coefficient (kLongestNorm).
void clipped_product(const Tensor& a, const Tensor& g, const Tensor& coefficients,
                     const Tensor& out, bool add);

// out[i, r, c] = the sum over t of g[i, t, r] a[i, t, c], rounded to their type; squared[piece.row,
// first_sample + i] += the sum of squares of the rounded numbers in a piece's rows, which are
// columns of g. out [n, p, d], of any distance between samples; squared fp64 [rows, m].
bool kept_product_can_write(const Tensor& out, const std::vector<launch::SamplePiece>& pieces);
void kept_product(const Tensor& a, const Tensor& g, const Tensor& out,
                  const std::vector<launch::SamplePiece>& pieces, const Tensor& squared,
                  int64_t first_sample);
int64_t kept_product_scratch_bytes(int64_t samples, int64_t rows, int64_t columns);

// Norms by Gram matrices of reports that have the same samples and tokens, found together.
struct GramReport {
  Tensor a, g;                              // [n, T, d], [n, T, p]
  std::vector<launch::SamplePiece> pieces;  // columns of g, and the row of `squared` they are for
  int64_t first_sample = 0;                 // the first one's column of `squared`
};
// squared[row, first_sample + i] += for each piece the sum over pairs of tokens of (a a^T)(g g^T),
// and rounding * (the sum over t of |a_t| |g_t|)^2. squared fp64 [rows, m].
void add_gram_norms(const std::vector<GramReport>& reports, double rounding, const Tensor& squared);
int64_t gram_norms_scratch_bytes(int64_t samples, int64_t tokens);
// Tensor cores cut off what does not fit into a sum: of an entry up to a last place of |a_t| |a_s|,
// or |g_t| |g_s|, for each product of 16 columns. A part of `rounding`.
inline constexpr double kGramTruncation = 2 * launch::kGramColumns / 16 * 0x1p-23;

}  // namespace veil
