#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "run/config.h"
#include "run/ranks.h"
#include "tensor/device.h"

namespace veil {
namespace {

// Whole numbers whose sums stay below 2^24: fp32 holds every partial sum exactly, so a result is the
// exact one rounded once, however it is split. Partial sums of two bytes would be rounded as well.
// Products in batches are not covered: LibTorch has no such option for them.
TEST(GpuArithmetic, ProductsOfTwoByteNumbersAreRoundedOnce) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  set_arithmetic(RunConfig{});
  const auto whole_numbers = [](std::vector<int64_t> dims) {
    return at::randint(-9, 10, dims, at::TensorOptions(at::kDouble).device(gpu_device(0)));
  };
  for (const DType dtype : {at::kBFloat16, at::kHalf}) {
    for (const auto& [rows, columns] :
         {std::pair{64, 64}, {512, 512}, {1024, 1024}, {2048, 1040}}) {
      for (const int64_t inner : {1024, 4096, 16384, 65536}) {
        const std::string sizes = fmt::format("{} x {} x {}", rows, columns, inner);
        const Tensor x = whole_numbers({rows, inner}), y = whole_numbers({inner, columns});
        const Tensor exact = at::mm(x, y).to(at::kFloat).to(dtype);
        EXPECT_TRUE(at::equal(at::mm(x.to(dtype), y.to(dtype)), exact)) << sizes;
        EXPECT_TRUE(at::equal(at::mm(y.to(dtype).t(), x.to(dtype).t()), exact.t()))
            << sizes << ", turned";
        // rows that begin at odd addresses, for which there are fewer algorithms
        const Tensor odd = at::cat({x.narrow(1, 0, 1), x}, 1).to(dtype).narrow(1, 1, inner);
        EXPECT_TRUE(at::equal(at::mm(odd, y.to(dtype)), exact)) << sizes << ", odd";
      }
    }
  }
}

}  // namespace
}  // namespace veil
