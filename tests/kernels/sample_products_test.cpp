// Sums of clipped products, kept gradients and Gram norms by the tensor cores' kernels, compared
// with the same in fp64.
#include "kernels/sample_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace veil {
namespace {

// Sums of products of 16-bit numbers are fp32: every addition is off by at most a unit in the last
// place of the sum of magnitudes.
constexpr double kUnit = 0x1p-23;

struct Sizes {
  int64_t samples, tokens, rows, columns;
};
// Whole tiles, parts of tiles in every direction, one sample, many.
constexpr Sizes kSizes[] = {{2, 128, 256, 256}, {3, 1000, 328, 520}, {5, 200, 136, 1032},
                            {1, 77, 1000, 264}, {40, 64, 64, 72},    {2, 2048, 64, 64},
                            {1, 128, 64, 16384}};

class GpuSampleProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    if (!gpu_has_sample_products()) GTEST_SKIP() << "not of compute capability 9.0";
  }
  static Tensor normal(std::vector<int64_t> dims, DType dtype) {
    return at::randn(dims, at::TensorOptions(at::kFloat).device(gpu_device(0))).to(dtype);
  }
  static Tensor doubles(const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(gpu_device(0));
  }
};

// [n, p, d] in fp64.
Tensor products(const Tensor& a, const Tensor& g) {
  return at::bmm(g.to(at::kDouble).transpose(1, 2), a.to(at::kDouble));
}

std::vector<double> coefficients_of(int64_t samples) {
  std::vector<double> c;
  for (int64_t i = 0; i < samples; ++i)
    c.push_back(
        i % 3 == 1 ? 0 : std::ldexp(1 + 0.1 * static_cast<double>(i), -static_cast<int>(i % 7)));
  return c;
}

TEST_F(GpuSampleProducts, SumsAreThoseOfFp64WithinTheRoundingOfTheirTerms) {
  for (const DType dtype : {at::kBFloat16, at::kHalf}) {
    for (const Sizes& s : kSizes) {
      for (const bool add : {false, true}) {
        const Tensor a = normal({s.samples, s.tokens, s.columns}, dtype),
                     g = normal({s.samples, s.tokens, s.rows}, dtype);
        ASSERT_TRUE(sample_products_can_read(a, g));
        const std::vector<double> c = coefficients_of(s.samples);
        const Tensor before = normal({s.rows, s.columns}, at::kFloat), out = before.clone();
        clipped_product(a, g, doubles(c), out, add);
        const Tensor weights = doubles(c).view({-1, 1, 1});
        Tensor expected = (products(a, g) * weights).sum(0),
               magnitude = (products(a.abs(), g.abs()) * weights).sum(0);
        if (add) expected += before, magnitude += before.abs();
        // Each sum is added to once per token, and scaled once per sample.
        const double steps = static_cast<double>(s.samples * (s.tokens + 2) + 1);
        EXPECT_LE(((out - expected).abs() / magnitude).max().item<double>(), steps * kUnit)
            << dtype_name(dtype) << " " << s.samples << " x " << s.tokens << " x " << s.rows
            << " x " << s.columns << (add ? " added" : "");
        const Tensor again = before.clone();
        clipped_product(a, g, doubles(c), again, add);
        EXPECT_TRUE(at::equal(out, again)) << "other bits";
      }
    }
  }
}

// Invariant 6 of docs/privacy.md.
TEST_F(GpuSampleProducts, WhatHasNoCoefficientIsNotRead) {
  const Tensor a = normal({3, 192, 256}, at::kBFloat16), g = normal({3, 192, 384}, at::kBFloat16);
  Tensor with = normal({384, 256}, at::kFloat), without = with.clone(), none = with.clone();
  clipped_product(a, g, doubles({0.5, 0, 2}), without, false);
  a[1].fill_(std::numeric_limits<float>::quiet_NaN());
  g[1].fill_(std::numeric_limits<float>::infinity());
  clipped_product(a, g, doubles({0.5, 0, 2}), with, false);
  EXPECT_TRUE(at::equal(with, without));
  clipped_product(a, g, doubles({0, 0, 0}), none, true);
  EXPECT_FALSE(at::equal(none, at::zeros_like(none))) << "what was there is gone";
  clipped_product(a, g, doubles({0, 0, 0}), none, false);
  EXPECT_TRUE(at::equal(none, at::zeros_like(none)));
}

// The longest gradients that have a coefficient beside short ones, in every order: neither
// overflows, nor do the short ones vanish.
TEST_F(GpuSampleProducts, LongAndShortSamplesAddUp) {
  const double longest = 0x1p109;
  for (const int first : {0, 1, 2}) {
    const Tensor a = normal({3, 64, 64}, at::kBFloat16), g = normal({3, 64, 64}, at::kBFloat16);
    a[first].mul_(0x1p50);
    g[first].mul_(0x1p50);
    std::vector<double> c(3, 1.0);
    c[static_cast<size_t>(first)] = 1 / longest;
    const Tensor out = normal({64, 64}, at::kFloat);
    clipped_product(a, g, doubles(c), out, false);
    const Tensor weights = doubles(c).view({-1, 1, 1}),
                 expected = (products(a, g) * weights).sum(0),
                 magnitude = (products(a.abs(), g.abs()) * weights).sum(0);
    EXPECT_LE(((out - expected).abs() / magnitude).max().item<double>(), 3 * 66 * kUnit) << first;
  }
}

// Reports are often columns of a wider matrix: q, k and v of one, gate and up of another.
TEST_F(GpuSampleProducts, ColumnsOfAWiderMatrixAreReadWhereTheyAre) {
  const Tensor wide = normal({2, 256, 1024}, at::kBFloat16);
  const Tensor a = wide.narrow(2, 64, 264), g = wide.narrow(2, 512, 328);
  ASSERT_TRUE(sample_products_can_read(a, g));
  const Tensor out = normal({328, 264}, at::kFloat), copied = out.clone();
  clipped_product(a, g, doubles({1, 3}), out, false);
  clipped_product(a.contiguous(), g.contiguous(), doubles({1, 3}), copied, false);
  EXPECT_TRUE(at::equal(out, copied));
  EXPECT_FALSE(sample_products_can_read(wide.narrow(2, 3, 264), g)) << "an odd address";
}

TEST_F(GpuSampleProducts, NormsAreNeverShorterThanTheGradients) {
  for (const DType dtype : {at::kBFloat16, at::kHalf}) {
    for (const Sizes& s : kSizes) {
      const Tensor a = normal({s.samples, s.tokens, s.columns}, dtype),
                   g = normal({s.samples, s.tokens, s.rows}, dtype);
      const int64_t cut = s.rows / 2 / 8 * 8, later = 1;
      const Tensor squared = at::zeros({4, s.samples + later}, a.options().dtype(at::kDouble));
      const double rounding = 2 * (1 + 1.0 / 64) * kUnit + kGramTruncation;
      add_gram_norms({{a, g, {{0, cut, 2}, {cut, s.rows - cut, 0}}, later}}, rounding, squared);
      for (const bool first : {true, false}) {
        const Tensor part = g.narrow(2, first ? 0 : cut, first ? cut : s.rows - cut);
        const Tensor expected = products(a, part).square().sum({1, 2});
        const Tensor lengths =
            (a.to(at::kDouble).square().sum(2) * part.to(at::kDouble).square().sum(2))
                .sqrt()
                .sum(1);
        const Tensor got = squared[first ? 2 : 0].narrow(0, later, s.samples);
        EXPECT_GE((got - expected).min().item<double>(), 0) << s.tokens;
        EXPECT_LE(((got - expected) / (2 * rounding * lengths.square())).max().item<double>(), 1)
            << dtype_name(dtype) << " " << s.samples << " x " << s.tokens;
      }
      EXPECT_EQ(squared[1].abs().max().item<double>(), 0);
      EXPECT_EQ(squared.select(1, 0).abs().max().item<double>(), 0);
      const Tensor again = at::zeros_like(squared);
      add_gram_norms({{a, g, {{0, cut, 2}, {cut, s.rows - cut, 0}}, later}}, rounding, again);
      EXPECT_TRUE(at::equal(squared, again)) << "other bits";
    }
  }
}

// Kept gradients, of which a sum of squares in fp32 has eight terms at most.
TEST_F(GpuSampleProducts, NormsOfKeptGradientsAreThoseOfTheNumbersThatAreKept) {
  for (const DType dtype : {at::kBFloat16, at::kHalf}) {
    const double half_place = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
    for (const Sizes& size : kSizes) {
      const auto [samples, tokens, rows, columns] = size;
      const std::string where =
          fmt::format("{} {} x {} x {} x {}", dtype_name(dtype), samples, tokens, rows, columns);
      const Tensor a = normal({samples, tokens, columns}, dtype),
                   g = normal({samples, tokens, rows}, dtype);
      // rows of other parameters before and behind
      const Tensor all = at::full({samples, rows * columns + 32}, 7.0, a.options());
      const Tensor out = all.as_strided({samples, rows, columns}, {all.stride(0), columns, 1},
                                        /*storage_offset=*/16);
      const Tensor squared = at::full({3, samples + 2}, 0.5, a.options().dtype(at::kDouble));
      const int64_t cut = rows / 2 / 16 * 16;
      ASSERT_TRUE(kept_product_can_write(out, {{0, cut, 2}, {cut, rows - cut, 0}}));
      kept_product(a, g, out, {{0, cut, 2}, {cut, rows - cut, 0}}, squared, /*first_sample=*/1);

      const Tensor exact = products(a, g), kept = out.to(at::kDouble);
      const Tensor magnitude = products(a.abs(), g.abs());
      const Tensor allowed = exact.abs() * half_place +
                             magnitude * (kUnit * static_cast<double>(tokens / 8 + 2)) + 0x1p-24;
      EXPECT_LE(((kept - exact).abs() / allowed).max().item<double>(), 1) << where;
      for (const int64_t edge : {int64_t{0}, all.size(1) - 16})
        EXPECT_TRUE(at::equal(all.narrow(1, edge, 16), at::full({samples, 16}, 7.0, a.options())))
            << where;

      const Tensor squares = kept.square();
      const auto worst = [&](int64_t row, int64_t first, int64_t count) {
        const Tensor of = squares.narrow(1, first, count).sum({1, 2});
        return ((squared[row].narrow(0, 1, samples) - 0.5 - of).abs() / of).max().item<double>();
      };
      constexpr double kEightTerms = 8 * 0x1p-24;
      EXPECT_LE(worst(2, 0, cut), kEightTerms) << where;
      EXPECT_LE(worst(0, cut, rows - cut), kEightTerms) << where;
      EXPECT_EQ(squared[1].min().item<double>(), 0.5) << where;
      EXPECT_EQ(squared[1].max().item<double>(), 0.5) << where;
      EXPECT_EQ(squared[2][0].item<double>(), 0.5) << where;
      EXPECT_EQ(squared[0][samples + 1].item<double>(), 0.5) << where;
    }
  }
}

TEST_F(GpuSampleProducts, KeptGradientsThatAreNotFiniteHaveNoFiniteNorm) {
  const Tensor a = normal({3, 128, 64}, at::kBFloat16), g = normal({3, 128, 64}, at::kBFloat16);
  a[1][100][3] = std::numeric_limits<float>::infinity();
  const Tensor out = at::zeros({3, 64, 64}, a.options());
  const Tensor squared = at::zeros({1, 3}, a.options().dtype(at::kDouble));
  kept_product(a, g, out, {{0, 64, 0}}, squared, 0);
  EXPECT_TRUE(std::isfinite(squared[0][0].item<double>()));
  EXPECT_FALSE(std::isfinite(squared[0][1].item<double>()));
  EXPECT_TRUE(std::isfinite(squared[0][2].item<double>()));
}

TEST_F(GpuSampleProducts, APieceThatCutsAStripIsNotTaken) {
  const Tensor out = at::zeros({1, 64, 64}, at::TensorOptions(at::kBFloat16).device(gpu_device(0)));
  EXPECT_TRUE(kept_product_can_write(out, {{0, 48, 0}, {48, 16, 1}}));
  EXPECT_FALSE(kept_product_can_write(out, {{0, 40, 0}, {40, 24, 1}}));
}

// More pieces than one kernel takes.
TEST_F(GpuSampleProducts, NormsOfManyPieces) {
  const Tensor a = normal({2, 128, 64}, at::kBFloat16), g = normal({2, 128, 448}, at::kBFloat16);
  const Tensor squared = at::zeros({7, 2}, a.options().dtype(at::kDouble));
  std::vector<launch::SamplePiece> pieces;
  for (int64_t m = 0; m < 7; ++m) pieces.push_back({m * 64, 64, m});
  add_gram_norms({{a, g, pieces}}, 0, squared);
  for (int64_t m = 0; m < 7; ++m) {
    const Tensor expected = products(a, g.narrow(2, m * 64, 64)).square().sum({1, 2});
    EXPECT_LE(((squared[m] - expected).abs() / expected).max().item<double>(), 1e-5) << m;
  }
}

TEST_F(GpuSampleProducts, ASampleThatIsNotFiniteHasANormThatIsNot) {
  const Tensor a = normal({3, 256, 64}, at::kBFloat16), g = normal({3, 256, 64}, at::kBFloat16);
  a[1][200][3] = std::numeric_limits<float>::infinity();
  const Tensor squared = at::zeros({1, 3}, a.options().dtype(at::kDouble));
  add_gram_norms({{a, g, {{0, 64, 0}}}}, kUnit, squared);
  EXPECT_TRUE(std::isfinite(squared[0][0].item<double>()));
  EXPECT_FALSE(std::isfinite(squared[0][1].item<double>()));
  EXPECT_TRUE(std::isfinite(squared[0][2].item<double>()));
}

}  // namespace
}  // namespace veil
