// Products of one sample's tokens with another matrix of the same sample, batched: what the
// clipping sinks are made of.
#pragma once

#include <functional>
#include <vector>

#include "kernels/launch.h"
#include "nn/grad_sink.h"

namespace veil::privacy {

// [n, T, width]; a report without tokens has one.
Tensor samples_of(const Tensor& x);

// As a factor of a product whose result is fp32 (fp64): x itself, or a widened copy if the
// device has no such product (16-bit types on CPU).
Tensor product_factor(const Tensor& x);

// out = x y, or out += x y; [n, ., .] each. out is fp32 if the factors are narrower
// (product_factor), else of their type; its samples may be any distance apart.
void product_into(Tensor& out, const Tensor& x, const Tensor& y, bool add);

// A report of `rows` rows, cut where one parameter ends: it may run on into joined ones, and it may
// be of some rows only. A piece's row of squared norms is the parameter. rows_of: by parameter, of
// `params`.
std::vector<launch::SamplePiece> pieces_of(ReportOf of, int64_t rows, size_t params,
                                           const std::function<int64_t(size_t)>& rows_of);
// Likewise one of `count` elements of every sample, from the parameter's first on
// (GradSink::direct). numel_of: by parameter.
std::vector<SampleSegment> segments_of(ParamId param, int64_t count, size_t params,
                                       const std::function<int64_t(size_t)>& numel_of);

}  // namespace veil::privacy
