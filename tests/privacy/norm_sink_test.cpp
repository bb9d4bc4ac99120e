// Squared norms by every rule are those of the very numbers that were reported, in fp32 or better
// whatever type these have.
#include "privacy/norm_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random.h"

namespace veil::privacy {
namespace {

Tensor normal(std::vector<int64_t> dims, DType dtype, uint64_t seed) {
  Tensor out = empty_tensor(dims, at::kFloat, cpu_device());
  fill_normal(out, 1.0, seed, RandomDomain::inputs, 0);
  return out.to(dtype);
}

double worst(const Tensor& got, const Tensor& expected) {
  return ((got - expected) / expected).abs().max().item<double>();
}

// Invariant 5 of docs/privacy.md: a Gram matrix in bf16 would be off by a thousandth.
TEST(NormSink, ProductsOfNarrowTypesAreNormedInFp32) {
  for (const DType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
      for (const int64_t tile : {3, 5, 256}) {
        for (const int64_t tokens : {1, 2, 17}) {
          const Tensor a = normal({3, tokens, 6}, dtype, 1), g = normal({3, tokens, 5}, dtype, 2);
          const Tensor squared = at::zeros({1, 3}, at::kDouble);
          NormSink sink({{5, 6, rule}}, {.tile = tile}, squared);
          sink.begin_body({});
          sink.linear({0}, a, g);
          const Tensor gradient = at::bmm(g.to(at::kDouble).transpose(1, 2), a.to(at::kDouble));
          // ghost adds what its rounding can hide: up to 2^-22 of the tokens' lengths, squared.
          const double allowed = dtype == at::kDouble      ? 1e-13
                                 : rule == NormRule::ghost ? 1e-5
                                                           : 2e-6;
          EXPECT_LE(worst(squared[0], gradient.square().sum({1, 2})), allowed)
              << dtype_name(dtype) << " " << name_of(rule) << " tile " << tile << " tokens "
              << tokens;
        }
      }
    }
  }
}

// Tensor cores cut off instead of rounding: sums over wide layers would come out too small, also in
// products of a library, which takes what no kernel does (here 60 rows, or 40 tokens).
TEST(GpuNormSink, GhostNormsOfWideLayersAreNeverTooSmall) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  for (const int64_t tokens : {2, 40, 128}) {
    for (const bool alike : {false, true}) {  // all tokens are the same: nothing averages out
      Tensor a = normal({2, tokens, 16384}, at::kBFloat16, 1),
             g = normal({2, tokens, 60}, at::kBFloat16, 2);
      if (alike) {
        a = a.narrow(1, 0, 1).expand_as(a).contiguous();
        g = g.narrow(1, 0, 1).expand_as(g).contiguous();
      }
      const Device gpu = gpu_device(0);
      const Tensor squared = at::zeros({1, 2}, at::kDouble).to(gpu);
      NormSink sink({{60, 16384, NormRule::ghost}}, {.tile = 1024}, squared);
      sink.begin_body({});
      sink.linear({0}, a.to(gpu), g.to(gpu));
      const Tensor expected =
          at::bmm(g.to(at::kDouble).transpose(1, 2), a.to(at::kDouble)).square().sum({1, 2});
      const Tensor got = squared[0].cpu();
      EXPECT_GE((got - expected).min().item<double>(), 0) << tokens << " " << alike;
      // At most what is added on purpose, twice: 2^-15 of the tokens' lengths, squared.
      const Tensor lengths =
          (a.to(at::kDouble).square().sum(2) * g.to(at::kDouble).square().sum(2)).sqrt().sum(1);
      EXPECT_LE(((got - expected) / lengths.square()).max().item<double>(), 0x1p-15)
          << tokens << " " << alike;
    }
  }
}

// A table that is also the head's weight has one gradient; tokens repeat inside the samples.
TEST(NormSink, ATiedTableCountsOnceWithItsCrossTermAndRepeatedTokensAreSummed) {
  const int64_t samples = 2, tokens = 7, rows = 5, width = 4;
  Tensor ids = empty_tensor({samples, tokens}, at::kLong, cpu_device());
  for (int64_t i = 0; i < ids.numel(); ++i) ids.data_ptr<int64_t>()[i] = (i * i + i / 3) % 3;
  for (const bool tied : {false, true}) {
    const Tensor a = normal({samples, tokens, width}, at::kDouble, 3),
                 g = normal({samples, tokens, rows}, at::kDouble, 4);
    const Tensor at_input = normal({samples, tokens, width}, at::kDouble, 5);
    const Tensor squared = at::zeros({1, samples}, at::kDouble);
    NormSink sink({{rows, width, NormRule::ghost}}, {.tile = 3, .tied_table = tied ? 0 : -1},
                  squared);
    sink.begin_body(ids);
    Tensor expected = at::zeros({samples, rows, width}, at::kDouble);
    if (tied) {
      sink.linear({0}, a, g);
      expected = at::bmm(g.transpose(1, 2), a);
    }
    sink.embedding(0, ids, at_input);
    for (int64_t i = 0; i < samples; ++i) {
      for (int64_t t = 0; t < tokens; ++t)
        expected[i][ids[i][t].item<int64_t>()].add_(at_input[i][t]);
    }
    EXPECT_LE(worst(squared[0], expected.square().sum({1, 2})), 1e-12) << tied;
  }
}

// Both tokens' inputs are 4096 to fp32's last place: their Gram entries are equal, and the
// gradient, (0, -100), cancels to nothing.
TEST(NormSink, WhatCancelsInAGramMatrixIsNotMeasuredTooSmall) {
  for (const DType dtype : {at::kFloat, at::kBFloat16}) {
    for (const NormRule rule : {NormRule::ghost, NormRule::flash, NormRule::materialize}) {
      const Tensor squared = at::zeros({1, 1}, at::kDouble);
      Tensor a = at::zeros({1, 2, 2}, at::kFloat), g = at::zeros({1, 2, 1}, at::kFloat);
      a[0][0][0] = 4096;
      a[0][1][0] = 4096;
      a[0][1][1] = 1;
      g[0][0][0] = 100;
      g[0][1][0] = -100;
      NormSink sink({{1, 2, rule}}, {.tile = 8}, squared);
      sink.begin_body({});
      sink.linear({0}, a.to(dtype), g.to(dtype));
      EXPECT_GE(std::sqrt(squared.item<double>()), 100 * (1 - 1e-5)) << name_of(rule);
    }
  }
}

}  // namespace
}  // namespace veil::privacy
