#include "kernels/column_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

bool in_fp64(DType x, DType out) {
  return x == at::kDouble || out == at::kDouble;
}

// The CPU reference: rows in order, a strip of columns at a time.
template <typename X, typename Out, typename Real>
void column_sum_cpu(const X* x, Out* out, int64_t rows, int64_t columns, bool accumulate) {
  constexpr int64_t kStrip = 256;
  at::parallel_for(0, (columns + kStrip - 1) / kStrip, 4, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t first = strip * kStrip, width = std::min(kStrip, columns - first);
      Real sums[kStrip] = {};
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < width; ++j)
          sums[j] += static_cast<Real>(x[i * columns + first + j]);
      }
      for (int64_t j = 0; j < width; ++j) {
        out[first + j] =
            static_cast<Out>(accumulate ? static_cast<Real>(out[first + j]) + sums[j] : sums[j]);
      }
    }
  });
}

}  // namespace

int64_t column_sum_scratch_bytes(int64_t rows, int64_t columns, DType x, DType out, bool on_gpu) {
  return on_gpu ? launch::column_sum_chunks(rows) * columns * (in_fp64(x, out) ? 8 : 4) : 0;
}

void column_sum(const Tensor& x, const Tensor& out, bool accumulate) {
  const int64_t columns = out.numel(), rows = columns ? x.numel() / columns : 0;
  VEIL_CHECK(x.is_contiguous() && out.is_contiguous() && x.numel() == rows * columns,
             "column sum of {} elements into {}", x.numel(), columns);
  const DType x_type = x.scalar_type(), out_type = out.scalar_type();
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const DType real = in_fp64(x_type, out_type) ? at::kDouble : at::kFloat;
    const Tensor partial =
        empty_tensor({launch::column_sum_chunks(rows) * columns}, real, x.device());
    launch::column_sum({x.data_ptr(), element_of(x), out.data_ptr(), element_of(out),
                        partial.data_ptr(), rows, columns, accumulate,
                        Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x_type, "column_sum", [&] {
    using X = scalar_t;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out_type, "column_sum", [&] {
      constexpr bool wide = std::is_same_v<X, double> || std::is_same_v<scalar_t, double>;
      column_sum_cpu<X, scalar_t, std::conditional_t<wide, double, float>>(
          x.data_ptr<X>(), out.data_ptr<scalar_t>(), rows, columns, accumulate);
    });
  });
}

}  // namespace veil
