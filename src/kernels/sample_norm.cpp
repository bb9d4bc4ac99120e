#include "kernels/sample_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Pieces of one size, so that sums do not depend on the threads.
template <typename Term>
double pieced_sum(int64_t numel, const Term& term) {
  constexpr int64_t kPiece = 1 << 14;
  double sum = 0;
  for (int64_t from = 0; from < numel; from += kPiece)
    sum +=
        lane_sum<double>(std::min(kPiece, numel - from), [&](int64_t j) { return term(from + j); });
  return sum;
}

template <typename T>
double squares(const T* x, int64_t numel) {
  return pieced_sum(
      numel, [x](int64_t j) { return static_cast<double>(x[j]) * static_cast<double>(x[j]); });
}

bool rows_contiguous(const Tensor& x) {
  return x.dim() > 0 && x.select(0, 0).is_contiguous();
}

bool sums_of(const Tensor& totals, int64_t samples) {
  return totals.scalar_type() == at::kDouble && totals.dim() == 1 && totals.size(0) == samples &&
         totals.is_contiguous();
}

template <typename T, typename Real>
double embedding_norm_cpu(const int64_t* ids, const T* g, int64_t tokens, int64_t width) {
  std::vector<int64_t> order(static_cast<size_t>(tokens));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [ids](int64_t a, int64_t b) { return ids[a] < ids[b]; });
  std::vector<Real> row(static_cast<size_t>(width));
  double total = 0;
  for (size_t from = 0; from < order.size();) {
    size_t to = from;
    std::fill(row.begin(), row.end(), Real{0});
    for (; to < order.size() && ids[order[to]] == ids[order[from]]; ++to) {
      const T* source = g + order[to] * width;
      for (int64_t j = 0; j < width; ++j)
        row[static_cast<size_t>(j)] += static_cast<Real>(source[j]);
    }
    total += squares(row.data(), width);
    from = to;
  }
  return total;
}

}  // namespace

int64_t segment_norms_scratch_bytes(int64_t samples, const std::vector<SampleSegment>& segments,
                                    bool on_gpu) {
  if (!on_gpu) return 0;
  int64_t chunks = 0;
  for (const SampleSegment& segment : segments) chunks += launch::sample_norm_chunks(segment.numel);
  return 8 * samples * chunks;
}

int64_t sample_norms_scratch_bytes(int64_t samples, int64_t numel, bool on_gpu) {
  return segment_norms_scratch_bytes(samples, {{0, numel, 0}}, on_gpu);
}

void add_segment_norms(const Tensor& x, const std::vector<SampleSegment>& segments,
                       const Tensor& squared, int64_t first) {
  VEIL_CHECK(x.dim() == 2 && x.stride(1) == 1 && squared.scalar_type() == at::kDouble &&
                 squared.is_contiguous() && first + x.size(0) <= squared.size(1),
             "norms of strided samples, or of {} from {} among {}", x.size(0), first,
             squared.size(1));
  const int64_t samples = x.size(0), columns = squared.size(1);
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    for (size_t from = 0; from < segments.size(); from += launch::kMostSegments) {
      const size_t count = std::min<size_t>(launch::kMostSegments, segments.size() - from);
      launch::SampleNorm norm{x.data_ptr(), element_of(x),
                              samples,      x.stride(0),
                              {},           static_cast<int>(count),
                              nullptr,      squared.data_ptr<double>() + first,
                              columns,      Stream::current(x.device()).handle()};
      int64_t chunks = 0;
      for (size_t s = 0; s < count; ++s) {
        norm.segments[s] = segments[from + s];
        chunks += launch::sample_norm_chunks(segments[from + s].numel);
      }
      const Tensor partial = empty_tensor({samples * chunks}, at::kDouble, x.device());
      norm.partial = partial.data_ptr<double>();
      launch::add_segment_norms(norm);
    }
    return;
  }
  double* const out = squared.data_ptr<double>() + first;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, x.scalar_type(), "add_segment_norms", [&] {
        const scalar_t* data = x.data_ptr<scalar_t>();
        const auto count = static_cast<int64_t>(segments.size());
        at::parallel_for(0, count * samples, 1, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            const SampleSegment& segment = segments[static_cast<size_t>(k / samples)];
            const int64_t i = k % samples;
            out[segment.row * columns + i] +=
                squares(data + i * x.stride(0) + segment.offset, segment.numel);
          }
        });
      });
}

void copy_normed(const Tensor& from, const Tensor& to, const std::vector<SampleSegment>& segments,
                 const Tensor& squared) {
  const int64_t samples = from.size(0), width = from.size(1);
  VEIL_CHECK(from.stride(1) == 1 && to.stride(1) == 1 && to.size(0) == samples &&
                 to.size(1) == width && from.scalar_type() == sum_dtype(to.scalar_type()) &&
                 squared.scalar_type() == at::kDouble && squared.is_contiguous() &&
                 squared.size(1) == samples,
             "a copy of {} x {} strided samples", samples, width);
  int64_t covered = 0;
  for (const SampleSegment& segment : segments) {
    VEIL_CHECK(segment.offset == covered && segment.row >= 0 && segment.row < squared.size(0),
               "a segment at {} of a copy, {} are covered", segment.offset, covered);
    covered += segment.numel;
  }
  VEIL_CHECK(covered == width, "segments of {} columns for a copy of {}", covered, width);
  if (!to.is_cuda()) {
    to.copy_(from);
    return add_segment_norms(to, segments, squared);
  }
  for (size_t begin = 0; begin < segments.size(); begin += launch::kMostSegments) {
    const size_t count = std::min<size_t>(launch::kMostSegments, segments.size() - begin);
    launch::NormedCopy copy{.from = from.data_ptr(),
                            .to = to.data_ptr(),
                            .element = element_of(to),
                            .samples = samples,
                            .from_stride = from.stride(0),
                            .to_stride = to.stride(0),
                            .segments = {},
                            .count = static_cast<int>(count),
                            .squared = squared.data_ptr<double>(),
                            .columns = samples,
                            .stream = Stream::current(to.device()).handle()};
    std::copy_n(segments.begin() + static_cast<int64_t>(begin), count, copy.segments);
    launch::copy_normed(copy);
  }
}

void add_sample_norms(const Tensor& x, const Tensor& totals) {
  const int64_t samples = x.size(0), numel = samples ? x.numel() / samples : 0;
  VEIL_CHECK(rows_contiguous(x) && sums_of(totals, samples), "sample norms of strided samples");
  add_segment_norms(x.as_strided({samples, numel}, {x.stride(0), 1}), {{0, numel, 0}},
                    totals.view({1, samples}));
}

namespace {

void add_products(const Tensor& x, const Tensor& y, double factor, int64_t side, double rounding,
                  const Tensor& totals) {
  const int64_t samples = x.size(0), numel = samples ? x.numel() / samples : 0;
  VEIL_CHECK(x.is_contiguous() && y.is_contiguous() && y.numel() == x.numel() &&
                 y.scalar_type() == x.scalar_type() && sums_of(totals, samples),
             "products of {} and {} elements", x.numel(), y.numel());
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const Tensor partial =
        empty_tensor({samples * launch::sample_norm_chunks(numel)}, at::kDouble, x.device());
    launch::add_sample_products({x.data_ptr(), y.data_ptr(), element_of(x), samples, numel, factor,
                                 side, rounding, partial.data_ptr<double>(),
                                 totals.data_ptr<double>(), Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, x.scalar_type(), "add_sample_products", [&] {
        at::parallel_for(0, samples, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const scalar_t *one = x.data_ptr<scalar_t>() + i * numel,
                           *other = y.data_ptr<scalar_t>() + i * numel;
            auto product = [=](int64_t j) {
              return static_cast<double>(one[j]) * static_cast<double>(other[j]);
            };
            double lengths = 0;
            for (int64_t t = 0; t < side; ++t) lengths += std::sqrt(product(t * (side + 1)));
            totals.data_ptr<double>()[i] +=
                factor * pieced_sum(numel, product) + rounding * lengths * lengths;
          }
        });
      });
}

}  // namespace

void add_sample_products(const Tensor& x, const Tensor& y, double factor, const Tensor& totals) {
  add_products(x, y, factor, /*side=*/0, /*rounding=*/0, totals);
}

void add_gram_products(const Tensor& x, const Tensor& y, double factor, double rounding,
                       const Tensor& totals) {
  VEIL_CHECK(x.dim() == 3 && x.size(1) == x.size(2), "a gram matrix is square");
  add_products(x, y, factor, x.size(1), rounding, totals);
}

void add_outer_norms(const Tensor& a, const Tensor& g, const Tensor& totals) {
  const int64_t samples = a.size(0);
  VEIL_CHECK(a.dim() == 2 && g.dim() == 2 && a.stride(1) == 1 && g.stride(1) == 1 &&
                 g.size(0) == samples && a.scalar_type() == g.scalar_type() &&
                 sums_of(totals, samples),
             "outer norms of strided samples");
  if (a.is_cuda()) {
    launch::add_outer_norms({a.data_ptr(), g.data_ptr(), element_of(a), samples, a.size(1),
                             g.size(1), a.stride(0), g.stride(0), totals.data_ptr<double>(),
                             Stream::current(a.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, a.scalar_type(), "add_outer_norms", [&] {
        for (int64_t i = 0; i < samples; ++i)
          totals.data_ptr<double>()[i] +=
              squares(a.data_ptr<scalar_t>() + i * a.stride(0), a.size(1)) *
              squares(g.data_ptr<scalar_t>() + i * g.stride(0), g.size(1));
      });
}

int64_t embedding_norms_scratch_bytes(int64_t samples, int64_t tokens, bool on_gpu) {
  // keys, sorted keys, positions, a norm for each run
  return on_gpu ? samples * tokens * (8 + 8 + 8 + 8) : 0;
}

void add_embedding_norms(const Tensor& ids, const Tensor& g, int64_t vocabulary,
                         const Tensor& totals) {
  const int64_t samples = ids.size(0), tokens = ids.size(1), width = g.size(2);
  VEIL_CHECK(ids.is_contiguous() && ids.scalar_type() == at::kLong && g.is_contiguous() &&
                 g.numel() == samples * tokens * width && sums_of(totals, samples),
             "embedding norms of {} tokens", ids.numel());
  if (ids.is_cuda()) {
    CategoryScope scope(Category::temporary);
    // A sample's ids lie apart from another's.
    const Tensor keys = ids + at::arange(samples, ids.options()).mul_(vocabulary).unsqueeze(1);
    auto [sorted, positions] =
        at::sort(keys.view(-1), /*stable=*/true, /*dim=*/0, /*descending=*/false);
    const Tensor runs = empty_tensor({samples * tokens}, at::kDouble, ids.device());
    launch::add_embedding_norms({sorted.data_ptr<int64_t>(), positions.data_ptr<int64_t>(),
                                 g.data_ptr(), element_of(g), samples, tokens, vocabulary, width,
                                 runs.data_ptr<double>(), totals.data_ptr<double>(),
                                 Stream::current(ids.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, g.scalar_type(), "add_embedding_norms", [&] {
        using real = at::opmath_type<scalar_t>;
        at::parallel_for(0, samples, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            totals.data_ptr<double>()[i] += embedding_norm_cpu<scalar_t, real>(
                ids.data_ptr<int64_t>() + i * tokens, g.data_ptr<scalar_t>() + i * tokens * width,
                tokens, width);
        });
      });
}

void gather_columns(const Tensor& g, const Tensor& ids, int64_t row, const Tensor& out) {
  const int64_t samples = g.size(0), tokens = g.size(1), columns = g.size(2), chosen = ids.size(1);
  VEIL_CHECK(g.stride(2) == 1 && ids.stride(1) == 1 && ids.scalar_type() == at::kLong &&
                 out.is_contiguous() && out.scalar_type() == g.scalar_type() &&
                 out.numel() == samples * tokens * chosen,
             "columns gathered from a strided product");
  if (g.is_cuda()) {
    launch::gather_columns({g.data_ptr(), element_of(g), g.stride(0), g.stride(1),
                            ids.data_ptr<int64_t>(), ids.stride(0), out.data_ptr(), samples, tokens,
                            columns, chosen, row, Stream::current(g.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, g.scalar_type(), "gather_columns", [&] {
    const scalar_t* source = g.data_ptr<scalar_t>();
    scalar_t* to = out.data_ptr<scalar_t>();
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t* id = ids.data_ptr<int64_t>() + i * ids.stride(0);
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t s = 0; s < chosen; ++s, ++to) {
          const int64_t column = id[s] - row;
          *to = column >= 0 && column < columns ? source[i * g.stride(0) + t * g.stride(1) + column]
                                                : scalar_t(0);
        }
      }
    }
  });
}

}  // namespace veil
