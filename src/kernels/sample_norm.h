// Per-sample squared norms: the sums that clipping rests on. They are fp64 whatever the elements'
// type, made in a fixed order, without atomics.
#pragma once

#include <vector>

#include "kernels/sample_segment.h"
#include "tensor/device.h"

namespace veil {

// squared[row of segment, i] += the sum of squares of x[i, offset : offset + numel]. x [n, width]
// of any floating type, rows contiguous, at any distance; squared fp64 [rows, m], m >= n, from
// column `first` on.
void add_segment_norms(const Tensor& x, const std::vector<SampleSegment>& segments,
                       const Tensor& squared, int64_t first = 0);
int64_t segment_norms_scratch_bytes(int64_t samples, const std::vector<SampleSegment>& segments,
                                    bool on_gpu);

// The same of a copy: to = from, rounded to its type, and squared[row of segment, i] += the sum of
// squares of to[i, offset : offset + numel]. The segments cover all columns, each with a row of its
// own. from [n, width] of the type that sums of to's have; rows of both contiguous, at any distance;
// squared fp64 [rows, n].
void copy_normed(const Tensor& from, const Tensor& to, const std::vector<SampleSegment>& segments,
                 const Tensor& squared);

// Of one range: totals fp64 [n]. x [n, ...]: each sample's elements contiguous.
void add_sample_norms(const Tensor& x, const Tensor& totals);
// totals[i] += factor * the sum of x[i] y[i]. Contiguous, of one type.
void add_sample_products(const Tensor& x, const Tensor& y, double factor, const Tensor& totals);
// Of square matrices of products of tokens, whose diagonals are squared lengths: in addition
// rounding * (the sum over t of sqrt(x[i, t, t] y[i, t, t]))^2. x, y [n, T, T].
void add_gram_products(const Tensor& x, const Tensor& y, double factor, double rounding,
                       const Tensor& totals);
int64_t sample_norms_scratch_bytes(int64_t samples, int64_t numel, bool on_gpu);

// totals[i] += norm(a[i])^2 norm(g[i])^2: a product of one token. a [n, d], g [n, p] of one type,
// rows contiguous at any distance.
void add_outer_norms(const Tensor& a, const Tensor& g, const Tensor& totals);

// totals[i] += the squared norm of a table's gradient: rows of g[i] with the same id are added
// before they are squared. ids [n, tokens] int64, g [n, tokens, width], contiguous. A GPU passes
// over ids outside [0, vocabulary).
void add_embedding_norms(const Tensor& ids, const Tensor& g, int64_t vocabulary,
                         const Tensor& totals);
int64_t embedding_norms_scratch_bytes(int64_t samples, int64_t tokens, bool on_gpu);

// out[i, t, s] = g[i, t, ids[i, s] - row] where that column is one of g's, otherwise 0. g [n, T, p]
// rows contiguous, ids [n, S] at any distance between samples, out [n, T, S] of g's type.
void gather_columns(const Tensor& g, const Tensor& ids, int64_t row, const Tensor& out);

}  // namespace veil
