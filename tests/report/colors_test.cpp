#include "report/colors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/names.h"
#include "report/figures.h"
#include "run/clip_choice.h"

namespace veil {
namespace {

void expect_distinct(const std::vector<std::string>& colors) {
  const std::set<std::string> different(colors.begin(), colors.end());
  EXPECT_EQ(different.size(), colors.size()) << ::testing::PrintToString(colors);
}

TEST(Colors, NoTwoModesShareOneAndAnAliasHasItsModes) {
  std::vector<std::string> colors;
  for (const std::string& mode : all_names<Mode>()) colors.push_back(mode_color(mode));
  // Modes that Veil does not know, as other profilers name them.
  for (size_t place = 0; place < 12; ++place)
    colors.push_back(mode_color("unknown_" + std::to_string(place), place));
  expect_distinct(colors);
  EXPECT_EQ(mode_color("vanilla", 5), mode_color("no_dp"));
  EXPECT_EQ(mode_color("flash_clip", 3), mode_color("flash", 7));
}

TEST(Colors, NoTwoPartsOfAStepShareOneWhateverThePartsAre) {
  Amounts all = {{"forward", 1},
                 {"loss", 1},
                 {"backward", 1},
                 {"first_backward", 1},
                 {"backward_and_norms", 1},
                 {"backward_and_kept_norms", 1},
                 {"norms", 1},
                 {"kept_norms", 1},
                 {"coefficients", 1},
                 {"second_loss", 1},
                 {"second_backward", 1},
                 {"weight_grad", 1},
                 {"combine", 1},
                 {"noise", 1},
                 {"update", 1},
                 {"noise_update", 1},
                 {"combine_noise_update", 1},
                 {"gap", 1},
                 {"data", 1},
                 {"recompute", 1},
                 {"wait for gather", 1},
                 {"wait for reduce", 1},
                 {"wait for copy", 1},
                 {"other", 1},
                 {"rest", 1},
                 {"made up", 1}};
  const std::vector<std::string> parts = phases_of({&all});
  ASSERT_EQ(parts.size(), all.size());
  expect_distinct(colors_of(parts));
  // A part has its colour whatever is next to it.
  EXPECT_EQ(colors_of({"norms"})[0], colors_of({"made up", "forward", "norms"})[2]);
}

TEST(Colors, NoTwoCategoriesOfMemoryShareOne) {
  expect_distinct(colors_of({"parameters", "optimizer", "gradients", "activations", "clip_records",
                             "norms", "temporary", "communication", "data", "another"}));
}

TEST(Colors, SeriesNeverRepeat) {
  std::vector<std::string> colors;
  for (size_t place = 0; place < 60; ++place) colors.push_back(series_color(place));
  expect_distinct(colors);
}

}  // namespace
}  // namespace veil
