#include "kernels/embedding_grad.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/sample_norm.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Positions ordered by id, equal ids by position; and where each id's run begins, with the end
// behind the last.
struct Runs {
  std::vector<int64_t> positions, begins;
};

Runs runs_of(const int64_t* ids, int64_t count) {
  Runs runs;
  runs.positions.resize(static_cast<size_t>(count));
  std::iota(runs.positions.begin(), runs.positions.end(), int64_t{0});
  std::stable_sort(runs.positions.begin(), runs.positions.end(),
                   [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  for (size_t p = 0; p < runs.positions.size(); ++p) {
    if (p == 0 || ids[runs.positions[p]] != ids[runs.positions[p - 1]])
      runs.begins.push_back(static_cast<int64_t>(p));
  }
  runs.begins.push_back(count);
  return runs;
}

template <typename T, typename Out, typename Real>
void embedding_grad_cpu(const int64_t* ids, const T* grad, Out* out, int64_t count,
                        int64_t vocabulary, int64_t width, bool accumulate,
                        const double* coefficients, int64_t tokens) {
  if (!accumulate) {
    at::parallel_for(0, vocabulary, rows_a_thread(width), [&](int64_t begin, int64_t end) {
      std::memset(out + begin * width, 0, static_cast<size_t>((end - begin) * width) * sizeof(Out));
    });
  }
  const Runs runs = runs_of(ids, count);
  constexpr int64_t kStrip = 512;
  at::parallel_for(0, static_cast<int64_t>(runs.begins.size()) - 1, rows_a_thread(width),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t run = begin; run < end; ++run) {
                       const int64_t from = runs.begins[static_cast<size_t>(run)],
                                     to = runs.begins[static_cast<size_t>(run) + 1];
                       Out* row = out + ids[runs.positions[static_cast<size_t>(from)]] * width;
                       for (int64_t first = 0; first < width; first += kStrip) {
                         const int64_t columns = std::min(kStrip, width - first);
                         Real sums[kStrip] = {};
                         for (int64_t p = from; p < to; ++p) {
                           const int64_t position = runs.positions[static_cast<size_t>(p)];
                           const T* source = grad + position * width + first;
                           const auto factor = static_cast<Real>(
                               coefficients ? coefficients[position / tokens] : 1);
                           if (factor == 0) continue;
                           for (int64_t j = 0; j < columns; ++j)
                             sums[j] += factor * static_cast<Real>(source[j]);
                         }
                         for (int64_t j = 0; j < columns; ++j) {
                           row[first + j] = static_cast<Out>(
                               accumulate ? static_cast<Real>(row[first + j]) + sums[j] : sums[j]);
                         }
                       }
                     }
                   });
}

// A gradient's rows go to rows of a table that has its type or the one that sums have.
void check_grads(const Tensor& ids, const Tensor& grad, const Tensor& out, int64_t width) {
  const DType dtype = grad.scalar_type(), out_type = out.scalar_type();
  VEIL_CHECK(ids.scalar_type() == at::kLong && fits(grad, dtype, ids.numel() * width) &&
                 (out_type == dtype || out_type == real_of(dtype)),
             "gradient of an embedding: {} rows of {}, {} into {}", ids.numel(), width,
             c10::toString(dtype), c10::toString(out_type));
}

// ids [tables, positions], contiguous: sorting keeps the order of dimensions in memory.
void launch_grads(const Tensor& ids, const Tensor& grad, const Tensor& out, int64_t vocabulary,
                  int64_t width, int64_t out_stride, bool accumulate, const double* factors,
                  int64_t tokens, const Tensor& squared = {}) {
  CategoryScope scope(Category::temporary);
  Tensor sorted, positions, partial;
  if (squared.defined())
    partial = empty_tensor({ids.size(0) * launch::embedding_norm_partials(ids.size(1), width)},
                           at::kDouble, out.device());
  if (ids.numel())
    std::tie(sorted, positions) = at::sort(ids, /*stable=*/true, /*dim=*/1, /*descending=*/false);
  launch::embedding_grad(
      {static_cast<const int64_t*>(pointer_or_null(sorted)),
       static_cast<const int64_t*>(pointer_or_null(positions)), grad.data_ptr(), element_of(grad),
       out.data_ptr(), element_of(out), ids.size(1), vocabulary, width, accumulate, factors, tokens,
       ids.size(0), out_stride, static_cast<double*>(pointer_or_null(squared)),
       static_cast<double*>(pointer_or_null(partial)), Stream::current(out.device()).handle()});
}

}  // namespace

int64_t embedding_grad_scratch_bytes(int64_t positions, bool on_gpu) {
  return on_gpu ? int64_t{16} * positions : 0;
}

void embedding_grad(const Tensor& ids, const Tensor& grad, const Tensor& out, bool accumulate,
                    const Tensor& coefficients) {
  const int64_t count = ids.numel(), vocabulary = out.size(0),
                width = vocabulary ? out.numel() / vocabulary : 0;
  VEIL_CHECK(ids.is_contiguous() && out.is_contiguous(), "embedding_grad: strides");
  check_grads(ids, grad, out, width);
  VEIL_CHECK(!coefficients.defined() ||
                 (coefficients.is_contiguous() && coefficients.scalar_type() == at::kDouble &&
                  coefficients.numel() > 0 && count % coefficients.numel() == 0),
             "embedding_grad: {} positions of {} samples", count,
             coefficients.defined() ? coefficients.numel() : 0);
  if (out.numel() == 0) return;
  const auto* factors = static_cast<const double*>(pointer_or_null(coefficients));
  const int64_t tokens = factors ? count / coefficients.numel() : 1;
  if (out.is_cuda()) {
    launch_grads(ids.view({1, count}), grad, out, vocabulary, width, /*out_stride=*/0, accumulate,
                 factors, tokens);
    return;
  }
  const int64_t* id = ids.data_ptr<int64_t>();
  VEIL_CHECK(std::all_of(id, id + count, [&](int64_t i) { return i >= 0 && i < vocabulary; }),
             "embedding_grad: a token outside the vocabulary of {}", vocabulary);
  const DType dtype = grad.scalar_type();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "embedding_grad", [&] {
    using real = at::opmath_type<scalar_t>;
    const scalar_t* source = grad.data_ptr<scalar_t>();
    if (out.scalar_type() == real_of(dtype)) {
      embedding_grad_cpu<scalar_t, real, real>(id, source, out.data_ptr<real>(), count, vocabulary,
                                               width, accumulate, factors, tokens);
    } else {
      embedding_grad_cpu<scalar_t, scalar_t, real>(id, source, out.data_ptr<scalar_t>(), count,
                                                   vocabulary, width, accumulate, factors, tokens);
    }
  });
}

namespace {
void add_grads(const Tensor& ids, const Tensor& grad, const Tensor& out, bool accumulate,
               const Tensor& squared) {
  const int64_t tables = ids.size(0), width = grad.size(-1);
  VEIL_CHECK(ids.dim() == 2 && out.dim() == 2 && out.size(0) == tables && out.stride(1) == 1 &&
                 (tables <= 1 || out.stride(0) >= out.size(1)) && width > 0 &&
                 out.size(1) % width == 0,
             "embedding_grads of {} tables into {}", tables, out.size(0));
  if (!out.is_cuda()) {
    for (int64_t i = 0; i < tables; ++i)
      embedding_grad(ids.select(0, i), grad.select(0, i), out.select(0, i).view({-1, width}),
                     accumulate);
    if (squared.defined()) {
      squared.zero_();
      add_segment_norms(out, {{0, out.size(1), 0}}, squared.view({1, tables}));
    }
    return;
  }
  check_grads(ids, grad, out, width);
  if (out.numel() == 0) return;
  launch_grads(ids.contiguous(), grad, out, out.size(1) / width, width, out.stride(0), accumulate,
               /*factors=*/nullptr, /*tokens=*/1, squared);
}
}  // namespace

void embedding_grads(const Tensor& ids, const Tensor& grad, const Tensor& out, bool accumulate) {
  add_grads(ids, grad, out, accumulate, /*squared=*/{});
}

void embedding_grads_normed(const Tensor& ids, const Tensor& grad, const Tensor& out,
                            const Tensor& squared) {
  VEIL_CHECK(squared.scalar_type() == at::kDouble && squared.is_contiguous() &&
                 squared.dim() == 1 && squared.size(0) == ids.size(0),
             "norms of {} tables", ids.size(0));
  add_grads(ids, grad, out, /*accumulate=*/true, squared);
}

}  // namespace veil
