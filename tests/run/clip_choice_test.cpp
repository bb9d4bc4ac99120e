// The modes by their names, and which rule and pass each of them stands for.
#include "run/clip_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/linear_stack.h"

namespace veil {
namespace {

using privacy::NormRule;
using privacy::PassKind;

ModelShape shape() {
  return linear_stack(8, 2).shape(2, at::kFloat, false);
}

TEST(ClipChoice, EveryModeHasTheRuleAndThePlanOfItsName) {
  struct Row {
    const char* spelling;
    NormRule rule;
    PassKind pass;
    bool zero3;
  };
  const Row rows[] = {{"ghost", NormRule::ghost, PassKind::two_pass, false},
                      {"ghost_fsdp", NormRule::ghost, PassKind::two_pass, true},
                      {"flash", NormRule::flash, PassKind::two_pass, false},
                      {"flash_clip", NormRule::flash, PassKind::two_pass, false},
                      {"flash-fsdp", NormRule::flash, PassKind::two_pass, true},
                      {"bookkeeping", NormRule::ghost, PassKind::book, false},
                      {"flash_clip_bookkeeping", NormRule::flash, PassKind::book, false},
                      {"materialize", NormRule::materialize, PassKind::keep, false}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.spelling);
    ClipChoice choice;
    ASSERT_TRUE(find_name(row.spelling, choice.mode));
    const privacy::ClipMethod plan = clip_method(choice, shape(), {}, false);
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
  choice.pass = PassKind::book;
  choice.tile = 7;
  const privacy::ClipMethod plan = clip_method(choice, shape(), {}, true);
  EXPECT_EQ(plan.rules.at(0), NormRule::flash);
  EXPECT_EQ(plan.pass, PassKind::book);
  EXPECT_EQ(plan.tile, 7);
  EXPECT_TRUE(plan.layers);
}

TEST(ClipChoice, ThePerLayerPlanNeedsClippingByLayer) {
  ClipChoice choice{.mode = Mode::ghost};
  choice.pass = PassKind::per_layer;
  EXPECT_THROW(clip_method(choice, shape(), {}, false), UserError);
  EXPECT_EQ(clip_method(choice, shape(), {}, true).pass, PassKind::per_layer);
}

}  // namespace
}  // namespace veil
