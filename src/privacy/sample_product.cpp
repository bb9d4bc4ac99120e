#include "privacy/sample_product.h"

#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/tensor_arguments.h"

namespace veil::privacy {

Tensor samples_of(const Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(1) : x;
}

Tensor product_factor(const Tensor& x) {
  return x.is_cuda() || dtype_bytes(x.scalar_type()) >= 4 ? x : x.to(real_of(x.scalar_type()));
}

void product_into(Tensor& out, const Tensor& x, const Tensor& y, bool add) {
  const DType type = out.scalar_type();
  if (type == x.scalar_type()) {
    if (add) {
      at::baddbmm_out(out, out, x, y);
    } else {
      at::bmm_out(out, x, y);
    }
  } else if (add) {
    at::baddbmm_out(out, out, x, y, type);
  } else {
    at::bmm_out(out, x, y, type);
  }
}

std::vector<launch::SamplePiece> pieces_of(ReportOf of, int64_t rows, size_t params,
                                           const std::function<int64_t(size_t)>& rows_of) {
  std::vector<launch::SamplePiece> pieces;
  int64_t row = of.row;
  for (int64_t first = 0; first < rows; row = 0) {
    const auto param = static_cast<size_t>(of.param) + pieces.size();
    VEIL_CHECK(param < params, "a report runs on behind the last parameter");
    const int64_t count = std::min(rows_of(param) - row, rows - first);
    pieces.push_back({first, count, static_cast<int64_t>(param)});
    first += count;
  }
  return pieces;
}

std::vector<SampleSegment> segments_of(ParamId param, int64_t count, size_t params,
                                       const std::function<int64_t(size_t)>& numel_of) {
  std::vector<SampleSegment> segments;
  for (const launch::SamplePiece& piece : pieces_of({param}, count, params, numel_of))
    segments.push_back({piece.column, piece.count, piece.row});
  return segments;
}

}  // namespace veil::privacy
