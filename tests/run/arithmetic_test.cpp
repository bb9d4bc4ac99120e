#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "run/config.h"
#include "run/ranks.h"

namespace veil {
namespace {

// Whole numbers whose sums stay below 2^24: fp32 holds every partial sum exactly, so a result is the
// exact one rounded once, however it is split. Partial sums of two bytes would be rounded as well.
TEST(GpuArithmetic, ProductsOfTwoByteNumbersAreRoundedOnce) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  set_arithmetic(RunConfig{});
  const auto whole_numbers = [](std::vector<int64_t> dims) {
    return at::randint(-3, 4, dims, at::TensorOptions(at::kDouble).device(gpu_device(0)));
  };
  for (const DType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t side : {64, 512, 1040, 2048}) {
      for (const int64_t inner : {1024, 4096, 16384, 65536}) {
        const Tensor x = whole_numbers({side, inner}), y = whole_numbers({inner, side});
        const Tensor exact = at::mm(x, y).to(at::kFloat).to(dtype);
        EXPECT_TRUE(at::equal(at::mm(x.to(dtype), y.to(dtype)), exact)) << side << " " << inner;
        EXPECT_TRUE(at::equal(at::mm(y.to(dtype).t(), x.to(dtype).t()), exact.t()))
            << side << " " << inner << ", turned";
        // rows that begin at odd addresses, for which there are fewer algorithms
        const Tensor odd = at::cat({x.narrow(1, 0, 1), x}, 1).to(dtype).narrow(1, 1, inner);
        EXPECT_TRUE(at::equal(at::mm(odd, y.to(dtype)), exact)) << side << " " << inner << ", odd";
        EXPECT_TRUE(at::equal(at::bmm(x.to(dtype).unsqueeze(0), y.to(dtype).unsqueeze(0)),
                              exact.unsqueeze(0)))
            << side << " " << inner << ", batched";
      }
    }
  }
}

}  // namespace
}  // namespace veil
