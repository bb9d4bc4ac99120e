#include "kernels/sample_products.h"

#include <algorithm>

#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// What the copy engine reads in one piece, in elements of two bytes.
constexpr int64_t kWhole = 8;
// Smaller ones would leave most of a tile empty.
constexpr int64_t kFewestTokens = 64, kFewest = 64;

bool readable(const Tensor& x) {
  return x.dim() == 3 && x.stride(2) == 1 && x.stride(1) % kWhole == 0 && x.stride(1) > 0 &&
         (x.size(0) == 1 || (x.stride(0) % kWhole == 0 && x.stride(0) > 0)) &&
         reinterpret_cast<uintptr_t>(x.data_ptr()) % (2 * kWhole) == 0;
}

launch::SampleMatrix matrix_of(const Tensor& x) {
  return {x.data_ptr(), x.size(0) == 1 ? x.size(1) * x.stride(1) : x.stride(0), x.stride(1)};
}

}  // namespace

bool gpu_has_sample_products() {
  return gpu_count() == 0 || launch::has_sample_products();
}

bool sample_products_fit(DType compute, int64_t tokens, int64_t rows, int64_t columns) {
  return (compute == at::kBFloat16 || compute == at::kHalf) && tokens >= kFewestTokens &&
         std::min(rows, columns) >= kFewest && rows % kWhole == 0 && columns % kWhole == 0;
}

bool sample_products_can_read(const Tensor& a, const Tensor& g) {
  return a.is_cuda() && readable(a) && readable(g) && launch::has_sample_products() &&
         g.size(0) == a.size(0) && g.size(1) == a.size(1) && g.scalar_type() == a.scalar_type() &&
         sample_products_fit(a.scalar_type(), a.size(1), g.size(2), a.size(2));
}

bool sample_products_can_write(const Tensor& out) {
  return out.scalar_type() == at::kFloat && out.is_contiguous() &&
         reinterpret_cast<uintptr_t>(out.data_ptr()) % sizeof(float[4]) == 0;
}

void clipped_product(const Tensor& a, const Tensor& g, const Tensor& coefficients,
                     const Tensor& out, bool add) {
  VEIL_CHECK(sample_products_can_read(a, g), "a sum of products that no kernel makes");
  VEIL_CHECK(
      fits(out, at::kFloat, g.size(2) * a.size(2)) && fits(coefficients, at::kDouble, a.size(0)),
      "sums of other sizes or types");
  launch::clipped_product({.g = matrix_of(g),
                           .a = matrix_of(a),
                           .element = element_of(a),
                           .samples = a.size(0),
                           .tokens = a.size(1),
                           .rows = g.size(2),
                           .columns = a.size(2),
                           .coefficients = coefficients.data_ptr<double>(),
                           .out = out.data_ptr<float>(),
                           .add = add,
                           .stream = Stream::current(a.device()).handle()});
}

bool kept_product_can_write(const Tensor& out, const std::vector<launch::SamplePiece>& pieces) {
  return out.dim() == 3 && out.stride(2) == 1 && out.stride(1) == out.size(2) &&
         out.stride(1) % kWhole == 0 && (out.size(0) == 1 || out.stride(0) % kWhole == 0) &&
         reinterpret_cast<uintptr_t>(out.data_ptr()) % (2 * kWhole) == 0 &&
         pieces.size() <= launch::kMostKeptPieces &&
         std::all_of(pieces.begin(), pieces.end(), [&](const launch::SamplePiece& piece) {
           const int64_t end = piece.column + piece.count;
           return piece.column % launch::kKeptStrip == 0 &&
                  (end % launch::kKeptStrip == 0 || end == out.size(1));
         });
}

void kept_product(const Tensor& a, const Tensor& g, const Tensor& out,
                  const std::vector<launch::SamplePiece>& pieces, const Tensor& squared,
                  int64_t first_sample) {
  const int64_t samples = a.size(0), rows = g.size(2), columns = a.size(2);
  VEIL_CHECK(sample_products_can_read(a, g) && kept_product_can_write(out, pieces) &&
                 out.scalar_type() == a.scalar_type() && out.size(0) == samples &&
                 out.size(1) == rows && out.size(2) == columns,
             "gradients to be kept that no kernel makes");
  VEIL_CHECK(squared.scalar_type() == at::kDouble && squared.is_contiguous() &&
                 first_sample + samples <= squared.size(1),
             "norms of {} samples from {} on in {}", samples, first_sample, squared.size(1));
  int64_t next = 0;
  for (const launch::SamplePiece& piece : pieces) {
    VEIL_CHECK(piece.column >= next && piece.column + piece.count <= rows && piece.row >= 0 &&
                   piece.row < squared.size(0),
               "a piece of {} columns from {} on, for norms {}", piece.count, piece.column,
               piece.row);
    next = piece.column + piece.count;
  }
  CategoryScope scope(Category::temporary);
  const Tensor partial = empty_tensor({launch::kept_product_partials(samples, rows, columns)},
                                      at::kDouble, a.device());
  launch::KeptProduct product{.g = matrix_of(g),
                              .a = matrix_of(a),
                              .element = element_of(a),
                              .samples = samples,
                              .tokens = a.size(1),
                              .rows = rows,
                              .columns = columns,
                              .out = out.data_ptr(),
                              .out_stride = samples == 1 ? rows * columns : out.stride(0),
                              .piece = {},
                              .pieces = static_cast<int>(pieces.size()),
                              .partial = partial.data_ptr<double>(),
                              .squared = squared.data_ptr<double>() + first_sample,
                              .squared_stride = squared.size(1),
                              .stream = Stream::current(a.device()).handle()};
  std::copy(pieces.begin(), pieces.end(), product.piece);
  launch::kept_product(product);
}

int64_t kept_product_scratch_bytes(int64_t samples, int64_t rows, int64_t columns) {
  return launch::kept_product_partials(samples, rows, columns) * dtype_bytes(at::kDouble);
}

namespace {

// A report with more pieces than one takes is several.
std::vector<launch::GramReport> launched(const GramReport& report) {
  std::vector<launch::GramReport> list;
  for (size_t m = 0; m < report.pieces.size(); ++m) {
    const launch::SamplePiece& piece = report.pieces[m];
    VEIL_CHECK(piece.column % kWhole == 0 && piece.column + piece.count <= report.g.size(2),
               "a piece of {} columns from {} on", piece.count, piece.column);
    if (m % launch::kMostGramPieces == 0)
      list.push_back({.a = matrix_of(report.a),
                      .g = matrix_of(report.g),
                      .columns = report.a.size(2),
                      .piece = {},
                      .pieces = 0,
                      .first_sample = report.first_sample});
    list.back().piece[list.back().pieces++] = piece;
  }
  return list;
}

int64_t columns_of(const launch::GramReport& report) {
  int64_t columns = report.columns;
  for (int m = 0; m < report.pieces; ++m) columns += report.piece[m].count;
  return columns;
}

}  // namespace

void add_gram_norms(const std::vector<GramReport>& reports, double rounding,
                    const Tensor& squared) {
  if (reports.empty()) return;
  const Tensor& first = reports.front().a;
  std::vector<launch::GramReport> all;
  for (const GramReport& report : reports) {
    const Tensor &a = report.a, &g = report.g;
    VEIL_CHECK(sample_products_can_read(a, g), "norms that no kernel finds");
    VEIL_CHECK(a.size(0) == first.size(0) && a.size(1) == first.size(1) &&
                   a.scalar_type() == first.scalar_type(),
               "norms of reports that have other samples");
    VEIL_CHECK(squared.scalar_type() == at::kDouble && squared.is_contiguous() &&
                   report.first_sample + a.size(0) <= squared.size(1),
               "norms of {} samples from {} on in {}", a.size(0), report.first_sample,
               squared.size(1));
    for (const launch::GramReport& part : launched(report)) all.push_back(part);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
    return columns_of(one) > columns_of(other);
  });
  CategoryScope scope(Category::temporary);
  const Tensor partial = empty_tensor({launch::gram_norm_partials(first.size(0), first.size(1))},
                                      at::kDouble, first.device());
  launch::GramNorms norms = {.report = {},
                             .reports = 0,
                             .element = element_of(first),
                             .samples = first.size(0),
                             .tokens = first.size(1),
                             .rounding = rounding,
                             .partial = partial.data_ptr<double>(),
                             .squared = squared.data_ptr<double>(),
                             .squared_stride = squared.size(1),
                             .stream = Stream::current(first.device()).handle()};
  for (size_t r = 0; r < all.size(); ++r) {
    norms.report[norms.reports++] = all[r];
    if (norms.reports < launch::kMostGramReports && r + 1 < all.size()) continue;
    launch::gram_norms(norms);
    norms.reports = 0;
  }
}

int64_t gram_norms_scratch_bytes(int64_t samples, int64_t tokens) {
  return launch::gram_norm_partials(samples, tokens) * dtype_bytes(at::kDouble);
}

}  // namespace veil
