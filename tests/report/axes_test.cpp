#include "report/axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/canvas.h"

namespace veil {
namespace {

TEST(Axes, MarksAreRoundAndWrittenWithoutAnExponent) {
  const auto ticks = round_ticks({.low = 0, .high = 11897, .pixels = 290}, 6);
  ASSERT_GE(ticks.size(), 5u);
  EXPECT_EQ(ticks.front().text, "0");
  EXPECT_EQ(ticks[1].text, "2000");
  EXPECT_EQ(ticks.back().text, "10000");
  for (const double high : {0.003, 7.0, 970.0, 5.4e6, 8.1e8}) {
    for (const Tick& tick : round_ticks({.low = 0, .high = high, .pixels = 290}, 6))
      EXPECT_EQ(tick.text.find('e'), std::string::npos) << tick.text;
  }
}

TEST(Axes, ALogarithmicAxisHasOneTwoAndFive) {
  std::vector<std::string> texts;
  for (const Tick& tick :
       round_ticks({.low = 3, .high = 120, .pixels = 290, .logarithmic = true}, 6))
    texts.push_back(tick.text);
  EXPECT_THAT(texts, ::testing::ElementsAre("5", "10", "20", "50", "100"));
}

TEST(Axes, MarksThatWouldTouchAreLeftOutAndTheLastStays) {
  const PlotAxis axis{.low = 0, .high = 100, .pixels = 100};
  std::vector<Tick> ticks;
  for (int i = 0; i <= 100; i += 5) ticks.push_back({static_cast<double>(i), "12345"});
  const auto kept = without_overlaps(ticks, axis);
  ASSERT_EQ(kept.size(), 3u);  // 40 pixels each, and 4 between two
  EXPECT_EQ(kept.front().at, 0);
  EXPECT_EQ(kept.back().at, 100);
}

TEST(Axes, PixelsAndValuesAreInverse) {
  const PlotAxis linear{.low = -2, .high = 6, .pixels = 80};
  EXPECT_DOUBLE_EQ(linear.to_pixels(0), 20);
  EXPECT_DOUBLE_EQ(linear.from_pixels(20), 0);
  const PlotAxis log{.low = 1, .high = 100, .pixels = 80, .logarithmic = true};
  EXPECT_NEAR(log.to_pixels(10), 40, 1e-9);
  EXPECT_NEAR(log.from_pixels(40), 10, 1e-9);
}

TEST(Axes, TextsTouchNeitherPointsNorEachOtherNorTheEdge) {
  // Twelve points, most of them close to each other.
  std::vector<LabelledPoint> points;
  for (int i = 0; i < 12; ++i)
    points.push_back({40.0 + 9 * i, 60.0 + 7 * (i % 4) + 3 * i, "T = 1024"});
  const int width = 440, height = 290;
  const auto places = place_labels(points, width, height);
  int placed = 0;
  const double wide = kLetter * 8, half = 8;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    ++placed;
    EXPECT_GE(places[i]->x, 0);
    EXPECT_LE(places[i]->x + wide, width);
    for (size_t k = 0; k < places.size(); ++k) {
      const bool over_point = points[k].x > places[i]->x && points[k].x < places[i]->x + wide &&
                              std::abs(points[k].y - places[i]->y) < half;
      EXPECT_FALSE(over_point) << i << " hides point " << k;
      if (k <= i || !places[k]) continue;
      EXPECT_TRUE(std::abs(places[k]->x - places[i]->x) >= wide ||
                  std::abs(places[k]->y - places[i]->y) >= 2 * half)
          << i << " and " << k;
    }
  }
  EXPECT_GE(placed, 8);
  // One alone always has its name, also in a corner.
  for (const auto& [x, y] : {std::pair{0.0, 0.0}, {440.0, 290.0}, {440.0, 0.0}})
    EXPECT_TRUE(place_labels({{x, y, "flash_clip_bookkeeping"}}, width, height)[0]);
}

}  // namespace
}  // namespace veil
