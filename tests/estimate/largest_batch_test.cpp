#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "estimate/estimator.h"

namespace veil {
namespace {

constexpr int64_t kMaximum = 65536;

// Asks with a boundary in mind, and refuses to be asked twice or outside the range.
LargestBatch search(int64_t boundary, int64_t maximum, int64_t guess = 1) {
  std::set<int64_t> asked;
  const LargestBatch found = largest_batch(
      maximum,
      [&](int64_t batch) {
        EXPECT_TRUE(asked.insert(batch).second) << batch << " was tried twice";
        EXPECT_TRUE(batch >= 1 && batch <= maximum) << batch;
        return batch <= boundary;
      },
      guess);
  EXPECT_EQ(found.trials, static_cast<int>(asked.size()));
  EXPECT_LE(found.trials, 2 * std::log2(static_cast<double>(maximum)) + 3);
  return found;
}

TEST(LargestBatch, TheBoundaryIsFoundWhereverItIsAndWhereverTheSearchBegins) {
  for (const int64_t boundary : {1, 2, 3, 7, 8, 9, 100, 4095, 4096, 4097, 65534, 65535}) {
    for (const int64_t guess : {1, 2, 3, 50, 4096, 60000, 65536}) {
      SCOPED_TRACE(testing::Message() << "boundary " << boundary << ", guess " << guess);
      const LargestBatch found = search(boundary, kMaximum, guess);
      EXPECT_EQ(found.largest, boundary);
      EXPECT_EQ(found.too_large, boundary + 1);
    }
  }
}

TEST(LargestBatch, ZeroWhereNotEvenOneFits) {
  for (const int64_t guess : {1, 40}) {
    const LargestBatch found = search(0, kMaximum, guess);
    EXPECT_EQ(found.largest, 0);
    EXPECT_EQ(found.too_large, 1);
  }
  EXPECT_EQ(search(0, kMaximum).trials, 1);
  EXPECT_EQ(search(0, 1).largest, 0);
}

TEST(LargestBatch, TheMaximumWhereEverythingFits) {
  for (const int64_t maximum : {1, 2, 5, 64, 100}) {
    const LargestBatch found = search(maximum, maximum);
    EXPECT_EQ(found.largest, maximum);
    EXPECT_EQ(found.too_large, 0);
  }
}

TEST(LargestBatch, FromOneOnSizesDouble) {
  std::vector<int64_t> asked;
  largest_batch(kMaximum, [&](int64_t batch) {
    asked.push_back(batch);
    return batch <= 11;
  });
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 2, 4, 8, 16, 12, 10, 11}));
}

TEST(LargestBatch, AGoodGuessTakesTwoTrials) {
  EXPECT_EQ(search(1234, kMaximum, 1234).trials, 2);
  EXPECT_EQ(search(1234, kMaximum, 1235).trials, 2);
}

TEST(LargestBatch, AnswersThatAreNotMonotoneStillEndBesideOneThatDoesNotFit) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    std::map<int64_t, bool> answers;
    const LargestBatch found = largest_batch(
        kMaximum,
        [&](int64_t batch) {  // an allocator whose room depends on chance between 900 and 1100
          const uint32_t noise = (static_cast<uint32_t>(batch) * 2654435761u + seed * 40503u) >> 16;
          return answers[batch] = batch <= 900 || (batch < 1100 && noise % 2 == 0);
        },
        1 + seed * 7);
    EXPECT_TRUE(answers.at(found.largest)) << seed;
    EXPECT_FALSE(answers.at(found.too_large)) << seed;
    EXPECT_EQ(found.too_large, found.largest + 1) << seed;
    EXPECT_GE(found.largest, 900);
    EXPECT_LT(found.largest, 1100);
  }
}

// A machine whose bytes are `times` the estimated ones.
struct Confirmed {
  LargestBatch found;
  int runs = 0;
};
Confirmed confirm(double times, bool measures = true, int64_t maximum = kMaximum) {
  constexpr int64_t kModel = 5'000'000, kSample = 70'001, kLimit = 80'000'000;
  const auto estimate = [](int64_t batch) { return kModel + batch * kSample; };
  Confirmed confirmed;
  confirmed.found = confirmed_batch(maximum, kLimit, estimate, [&](int64_t batch) {
    ++confirmed.runs;
    const auto bytes = static_cast<int64_t>(times * static_cast<double>(estimate(batch)));
    return BatchRun{bytes <= kLimit, bytes > kLimit && !measures ? 0 : bytes};
  });
  EXPECT_EQ(confirmed.found.trials, confirmed.runs);
  return confirmed;
}

TEST(ConfirmedBatch, APredictionThatIsRightTakesARunOnEachSide) {
  for (const bool measures : {true, false}) {
    const Confirmed exact = confirm(1, measures);
    EXPECT_EQ(exact.runs, 2);
    EXPECT_EQ(exact.found.largest, 1071);
    EXPECT_EQ(exact.found.too_large, 1072);
  }
}

TEST(ConfirmedBatch, OneThatIsOffByThreePercentTakesTwoRunsToo) {
  for (const double times : {0.97, 0.99, 1.001, 1.01, 1.02, 1.029}) {
    for (const bool measures : {true, false}) {
      SCOPED_TRACE(testing::Message() << times << (measures ? "" : ", out of memory"));
      const Confirmed off = confirm(times, measures);
      EXPECT_EQ(off.runs, 2);
      EXPECT_GT(off.found.largest, 1030);
      EXPECT_GT(off.found.too_large, off.found.largest);
    }
  }
  // Where the bytes were seen, the second run is of the largest that fits.
  EXPECT_EQ(confirm(1.02).found.largest, 1049);
}

TEST(ConfirmedBatch, OneThatIsFarOffEndsWithABatchThatRan) {
  const Confirmed far = confirm(2, /*measures=*/false);
  EXPECT_GT(far.runs, 2);
  EXPECT_GT(far.found.largest, 0);
  EXPECT_LE(2 * (5'000'000 + far.found.largest * 70'001), 80'000'000);
  EXPECT_EQ(confirm(2).runs, 2) << "its bytes were seen";
}

TEST(ConfirmedBatch, NothingIsRunBeyondTheMaximumAndOneRunIsEnoughWhereNotEvenOneFits) {
  const Confirmed most = confirm(1, true, 100);
  EXPECT_EQ(most.runs, 1);
  EXPECT_EQ(most.found.largest, 100);
  EXPECT_EQ(most.found.too_large, 0);
  const Confirmed none = confirm(20);
  EXPECT_EQ(none.found.largest, 0);
  EXPECT_EQ(none.found.too_large, 1);
}

}  // namespace
}  // namespace veil
