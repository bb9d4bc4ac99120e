// The border between sizes that can be counted in 64 bits and those that cannot. The tests count
// in 128 bits, so that nothing of theirs wraps around.
#include "run/size_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/config_fields.h"
#include "run/config.h"

namespace veil {
namespace {

using Exact = unsigned __int128;
constexpr Exact kMostCounted = Exact{1} << 62;

// The field that is refused; "" if none is.
std::string refused(const ModelSource& source, const StepSizes& sizes) {
  try {
    check_sizes(source, sizes);
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
    return error.field();
  }
  return "";
}

// The largest value that `fits`, from 1 to `end`.
template <typename Fits>
int64_t largest(int64_t end, const Fits& fits) {
  int64_t low = 0, high = end;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    (fits(middle) ? low : high) = fits(middle) ? middle : middle - 1;
  }
  return low;
}

Exact exact(int64_t number) {
  return static_cast<Exact>(number);
}

// What check_sizes says a sample takes, in whole numbers.
struct ExactCost {
  Exact parameters = 0, operations = 0, activations = 0;
  Exact most() const { return std::max(operations, 8 * activations + 16 * parameters); }
};

ExactCost of_stack(int64_t width, int64_t layers) {
  ExactCost cost;
  cost.parameters = exact(layers) * exact(width) * exact(width + 1);
  cost.operations = 2 * cost.parameters;
  cost.activations = 8 * exact(layers) * exact(width);
  return cost;
}

ExactCost of_language(const LanguageConfig& c, int64_t tokens) {
  ExactCost cost;
  const Exact t = exact(tokens), hidden = exact(c.hidden), feed = exact(c.feed),
              width = exact(c.heads * c.head_dim), keys = exact(c.kv_heads * c.head_dim),
              layers = exact(c.layers);
  cost.parameters = hidden * exact(2 * c.vocabulary + c.positions + c.labels) +
                    layers * hidden * (2 * width + 2 * keys + 3 * feed + 8);
  cost.operations = 2 * cost.parameters * t + 4 * layers * t * t * width;
  cost.activations =
      4 * t * exact(c.vocabulary) +
      layers * t * (64 * (hidden + width + 2 * keys + 2 * feed) + 4 * exact(c.heads) * t);
  return cost;
}

ModelSource language(int64_t layers = 2) {
  ModelSource source;
  LanguageConfig config;
  config.hidden = 64;
  config.layers = layers;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.feed = 192;
  config.vocabulary = 1000;
  config.positions = 128;
  source.config = config;
  return source;
}

ModelSource diffusion(int64_t image_size, int64_t layers = 2) {
  ModelSource source;
  source.diffusion = DitConfig{.image_size = image_size, .hidden = 64, .layers = layers};
  return source;
}

TEST(SizeCheck, ABatchIsRefusedExactlyWhereItsBytesCannotBeCounted) {
  for (const auto& [width, layers] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {4096, 32}, {16384, 4096}, {1 << 20, 4096}}) {
    SCOPED_TRACE(testing::Message() << width << " wide, " << layers << " layers");
    const auto one = of_stack(width, layers).most();
    const auto border = static_cast<int64_t>(kMostCounted / one);
    const auto field = [&, w = width, l = layers](int64_t batch) {
      return refused({}, {.batch = batch, .stack_width = w, .layers = l});
    };
    // Numbers of this size have 53 bits: right at the border one of them may be taken for another.
    const int64_t near = 1 + border / (int64_t{1} << 50);
    EXPECT_EQ(field(border - near), "");
    EXPECT_EQ(field(border + 1 + near), "batch_size");
    EXPECT_EQ(field(2 * border + 2), "batch_size");
    // Multiplied in 64 bits, these are 0 or small again.
    for (const int64_t batch :
         {int64_t{1} << 60, int64_t{1} << 62, std::numeric_limits<int64_t>::max() / 2 + 1,
          std::numeric_limits<int64_t>::max()}) {
      EXPECT_EQ(field(batch), "batch_size") << batch;
    }
  }
}

TEST(SizeCheck, ASequenceIsRefusedExactlyWhereItsOperationsCannotBeCounted) {
  const ModelSource source = language();
  const auto counted = [&](int64_t tokens) {
    return of_language(*source.config, tokens).most() <= kMostCounted;
  };
  const int64_t border = largest(int64_t{1} << 40, counted);
  ASSERT_GT(border, 1 << 20);
  ASSERT_LT(border, int64_t{1} << 35);
  EXPECT_EQ(refused(source, {.seq_length = border - 1}), "");
  EXPECT_EQ(refused(source, {.seq_length = border + 2}), "seq_length");
  EXPECT_EQ(refused(source, {.seq_length = int64_t{1} << 32}), "seq_length");
  EXPECT_EQ(refused(source, {.seq_length = int64_t{1} << 62}), "seq_length");
  // A sequence that can be counted, in a batch that cannot: the batch is at fault.
  EXPECT_EQ(refused(source, {.batch = 1 << 20, .seq_length = border - 1}), "batch_size");
  const auto samples = static_cast<int64_t>(kMostCounted / of_language(*source.config, 128).most());
  EXPECT_EQ(refused(source, {.batch = samples - 1, .seq_length = 128}), "");
  EXPECT_EQ(refused(source, {.batch = samples + samples / 1000, .seq_length = 128}), "batch_size");
}

// Of an image's patches every pair is counted: (2^32)^2 of them are 0 in 64 bits.
TEST(SizeCheck, AnImageIsRefusedWhoseTokensCannotBeCounted) {
  const auto fits = [](int64_t side) { return refused(diffusion(8 * side), {}).empty(); };
  const int64_t border = largest(int64_t{1} << 40, fits);
  // Of n tokens in 2 layers of 16 heads, scores alone are 8 x 2 x 4 x 16 n^2 bytes.
  const Exact tokens = exact(border) * exact(border);
  EXPECT_LE(8 * 2 * 4 * 16 * tokens * tokens, kMostCounted);
  EXPECT_GE(8 * 2 * 4 * 16 * tokens * tokens, kMostCounted / 2);
  for (const int64_t side :
       {border + 1, int64_t{1} << 31, int64_t{1} << 32, int64_t{3} << 31, int64_t{1} << 40})
    EXPECT_EQ(refused(diffusion(8 * side), {}), "image_size") << side;
  EXPECT_EQ(refused(diffusion(8 * border), {.batch = 1 << 20}), "batch_size");
}

TEST(SizeCheck, LayersAreBoundedForEveryKindOfModel) {
  EXPECT_EQ(refused({}, {.layers = kMostLayers}), "");
  EXPECT_EQ(refused({}, {.layers = kMostLayers + 1}), "layers");
  EXPECT_EQ(refused(language(kMostLayers), {}), "");
  EXPECT_EQ(refused(language(kMostLayers + 1), {}), "layers");
  EXPECT_EQ(refused(diffusion(64, kMostLayers), {}), "");
  EXPECT_EQ(refused(diffusion(64, kMostLayers + 1), {}), "layers");
}

TEST(SizeCheck, BatchesHaveTheirOwnLimits) {
  const auto settled = [](int64_t batch, std::optional<int64_t> total) -> std::string {
    RunConfig config;
    config.step.batch_size = batch;
    config.step.total_batch_size = total;
    try {
      settle_batch(config, 1);
    } catch (const UserError& error) {
      return error.field();
    }
    return "";
  };
  EXPECT_EQ(settled(kMostBatch, {}), "");
  EXPECT_EQ(settled(kMostBatch + 1, {}), "batch_size");
  EXPECT_EQ(settled(0, kMostTotalBatch), "");
  EXPECT_EQ(settled(0, kMostTotalBatch + 1), "total_batch_size");
  EXPECT_EQ(settled(1, kMostAccumulation), "");
  EXPECT_EQ(settled(1, kMostAccumulation + 1), "total_batch_size");
}

}  // namespace
}  // namespace veil
