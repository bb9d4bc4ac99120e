// Norms, coefficients and clipped sums of every golden model through the executor's private step:
// every rule, pass and strategy.
#include <gtest/gtest.h>

#include "engine/test_private_golden.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

TEST(PrivateGolden, EveryRuleAndPlanIsExactThroughTheExecutor) {
  for (const PrivateGolden& golden : private_goldens()) {
    size_t turn = 0;
    for (const DType dtype : {at::kDouble, at::kFloat}) {
      for (const PassKind pass :
           {PassKind::keep, PassKind::book, PassKind::two_pass, PassKind::per_layer}) {
        for (const NormRule rule : {NormRule::materialize, NormRule::ghost, NormRule::flash}) {
          GoldenSetting setting{.pass = pass, .rule = rule, .dtype = dtype};
          setting.strategy = static_cast<Strategy>(turn % 3);
          setting.tile = turn % 2 ? 5 : 256;
          setting.single = turn % 5 == 4;
          expect_private_golden(golden, setting, dtype == at::kDouble ? 1e-9 : golden.fp32_allowed,
                                1, {});
          ++turn;
        }
      }
    }
  }
}

}  // namespace
}  // namespace veil
