#include "suite/dit.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace veil {
namespace {

std::vector<std::string> names_of(const std::vector<Experiment>& plan) {
  std::vector<std::string> names;
  for (const Experiment& experiment : plan) names.push_back(experiment.name);
  return names;
}

TEST(DitSuite, HasTheSeedsNamesAndAuto) {
  EXPECT_EQ(names_of(dit_experiments({}, {})),
            (std::vector<std::string>{"vanilla", "ghost", "flash_clip", "bookkeeping",
                                      "flash_clip_bookkeeping", "auto"}));
}

TEST(DitSuite, EveryListMultipliesAndOnlyWhatDiffersIsNamed) {
  DitGrid grid;
  grid.modes = {Mode::ghost};
  grid.models = {"dit-l/8", "dit-xl/8"};
  grid.patch_sizes = {8};
  grid.attentions = {AttentionKind::automatic, AttentionKind::math};
  const std::vector<Experiment> plan = dit_experiments(grid, {"--batch-size", "2"});
  EXPECT_EQ(names_of(plan),
            (std::vector<std::string>{"ghost_dit-l-8_auto", "ghost_dit-l-8_math",
                                      "ghost_dit-xl-8_auto", "ghost_dit-xl-8_math"}));
  EXPECT_EQ(plan[3].arguments,
            (std::vector<std::string>{"--mode", "ghost", "--model", "dit-xl/8", "--patch-size", "8",
                                      "--attention", "math", "--batch-size", "2"}));
}

TEST(DitSuite, AValueThatStandsTwiceIsRefused) {
  DitGrid grid;
  grid.image_sizes = {64, 64};
  EXPECT_THROW(dit_experiments(grid, {}), UserError);
}

}  // namespace
}  // namespace veil
