// The seeds' modes, and what each of them stands for (design, section 3).
#include "suite/clip_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/linear_stack.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassPlan;

ModelShape shape() {
  return linear_stack(8, 2).shape(2, at::kFloat, false);
}

TEST(ClipChoice, EveryModeHasTheRuleAndThePlanOfItsName) {
  struct Row {
    const char* spelling;
    NormRule rule;
    PassPlan pass;
    bool zero3;
  };
  const Row rows[] = {{"ghost", NormRule::ghost, PassPlan::two_pass, false},
                      {"ghost_fsdp", NormRule::ghost, PassPlan::two_pass, true},
                      {"flash", NormRule::flash, PassPlan::two_pass, false},
                      {"flash_clip", NormRule::flash, PassPlan::two_pass, false},
                      {"flash-fsdp", NormRule::flash, PassPlan::two_pass, true},
                      {"bookkeeping", NormRule::ghost, PassPlan::book, false},
                      {"flash_clip_bookkeeping", NormRule::flash, PassPlan::book, false},
                      {"materialize", NormRule::materialize, PassPlan::keep, false}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.spelling);
    ClipChoice choice;
    ASSERT_TRUE(find_name(row.spelling, choice.mode));
    const privacy::ClipPlan plan = clip_plan(choice, shape(), {}, false);
    EXPECT_EQ(plan.pass, row.pass);
    EXPECT_EQ(sets_zero3(choice.mode), row.zero3);
    for (const NormRule rule : plan.rules) EXPECT_EQ(rule, row.rule);
  }
  Mode mode = Mode::automatic;
  EXPECT_TRUE(find_name("vanilla", mode) && mode == Mode::no_dp);
}

TEST(ClipChoice, PartsThatAreSetWinOverTheMode) {
  ClipChoice choice{.mode = Mode::ghost};
  choice.rule = NormRule::flash;
  choice.pass = PassPlan::book;
  choice.tile = 7;
  const privacy::ClipPlan plan = clip_plan(choice, shape(), {}, true);
  EXPECT_EQ(plan.rules.at(0), NormRule::flash);
  EXPECT_EQ(plan.pass, PassPlan::book);
  EXPECT_EQ(plan.tile, 7);
  EXPECT_TRUE(plan.layers);
}

TEST(ClipChoice, ThePerLayerPlanNeedsClippingByLayer) {
  ClipChoice choice{.mode = Mode::ghost};
  choice.pass = PassPlan::per_layer;
  EXPECT_THROW(clip_plan(choice, shape(), {}, false), UserError);
  EXPECT_EQ(clip_plan(choice, shape(), {}, true).pass, PassPlan::per_layer);
}

}  // namespace
}  // namespace veil
