// Gradients of tables by sample, with their norms: the CPU's against plain sums, CUDA's too.
#include "kernels/embedding_grad.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/test_operations.h"

namespace veil {
namespace {

// Gradients that were there before, and what is added: little, or nearly all of it taken
// away, of which a difference of squares would keep too few digits.
void table_norms_follow(Device device) {
  constexpr int64_t kSamples = 3, kTokens = 40, kVocabulary = 9;
  for (const auto& [dtype, table_type] : {std::pair{at::kDouble, at::kDouble},
                                          {at::kFloat, at::kFloat},
                                          {at::kBFloat16, at::kBFloat16},
                                          {at::kBFloat16, at::kFloat},
                                          {at::kHalf, at::kHalf}}) {
    for (const int64_t width : {1, 33, 64, 1032}) {
      for (const bool cancels : {false, true}) {
        SCOPED_TRACE(fmt::format("{} into {}, width {}{}", dtype_name(dtype),
                                 dtype_name(table_type), width, cancels ? ", cancels" : ""));
        const int64_t numel = kVocabulary * width, stride = (numel + 23) / 8 * 8;
        Tensor ids = at::randint(kVocabulary - 1, {kSamples, kTokens}, at::kLong);
        Tensor g = at::randn({kSamples, kTokens, width}, at::kDouble).to(dtype);
        Tensor all = at::randn({kSamples, stride}, at::kDouble).to(table_type);
        if (cancels) {
          const Tensor rows = all.narrow(1, 0, numel).view({kSamples, kVocabulary, width});
          g.zero_();
          g.narrow(1, 0, kVocabulary - 1)
              .copy_(rows.narrow(1, 0, kVocabulary - 1).to(at::kDouble) * (0x1p-6 - 1));
          ids.narrow(1, 0, kVocabulary - 1)
              .copy_(at::arange(kVocabulary - 1, at::kLong).expand({kSamples, -1}));
          rows.select(1, kVocabulary - 1).zero_();
        }
        all.select(0, 1).zero_();  // a sample that is padding so far
        const Tensor there = all.to(device), table = there.narrow(1, 0, numel),
                     plain = all.to(device),
                     squared = all.narrow(1, 0, numel).to(at::kDouble).square().sum(1).to(device);
        embedding_grads(ids.to(device), g.to(device), plain.narrow(1, 0, numel), true);
        embedding_grads_normed(ids.to(device), g.to(device), table, squared);
        EXPECT_TRUE(at::equal(there.cpu(), plain.cpu()));  // what lies behind it, too
        const Tensor expected = table.cpu().to(at::kDouble).square().sum(1);
        // sums in two orders, of which the first may be twice as large as what is left of it
        const Tensor allowed = expected * (4 * static_cast<double>(numel) * 0x1p-53);
        EXPECT_TRUE(((squared.cpu() - expected).abs() <= allowed).all().item<bool>());
      }
    }
  }
}

TEST(SampleOperations, NormsOfTablesFollowWhatIsAdded) {
  table_norms_follow(cpu_device());
}

TEST(GpuSampleOperations, NormsOfTablesFollowWhatIsAdded) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  table_norms_follow(gpu_device(0));
}

TEST(GpuSampleOperations, ANormThatIsNotFiniteStaysSo) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const auto options = at::TensorOptions(at::kBFloat16).device(gpu_device(0));
  const Tensor ids = at::zeros({2, 4}, options.dtype(at::kLong)), g = at::ones({2, 4, 64}, options);
  g[1][2][3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor table = at::ones({2, 7 * 64}, options),
               squared = at::zeros({2}, options.dtype(at::kDouble)).fill_(7 * 64);
  embedding_grads_normed(ids, g, table, squared);
  EXPECT_EQ(squared[0].item<double>(), 64 * 25 + 6 * 64);
  EXPECT_TRUE(std::isnan(squared[1].item<double>()));
}

}  // namespace
}  // namespace veil
