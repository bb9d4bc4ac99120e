#include "suite/layer_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace veil::layer_norms_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Record norms_record() {
  Record record;
  record.mode = "flash";
  record.seq_length = 512;
  record.layer_ms = {{"forward layers.0", 7},    {"norms embed", 0.5},     {"norms head", 1},
                     {"norms layers.0", 2},      {"norms layers.10", 4},   {"norms layers.2", 2.5},
                     {"first_backward head", 9}, {"coefficients ", 0.125}, {"zero ", 1}};
  return record;
}

TEST(LayerNorms, AreTheRowsOfNormsInTheOrderOfTheModel) {
  std::vector<std::string> layers;
  double sum = 0;
  for (const LayerNorm& norm : layer_norms(norms_record())) {
    layers.push_back(norm.layer);
    sum += norm.ms;
    EXPECT_FALSE(norm.backward);
  }
  EXPECT_EQ(layers,
            (std::vector<std::string>{"embed", "layers.0", "layers.2", "layers.10", "head"}));
  EXPECT_DOUBLE_EQ(sum, 10);
  EXPECT_TRUE(layer_norms({}).empty());
}

TEST(LayerNorms, TheSentenceNamesTheLayerThatTakesMost) {
  EXPECT_EQ(layer_norm_words(norms_record()),
            "Norms by layer, flash: layers.10 takes most, 4.00 ms of 10.0 ms (40%).");
  EXPECT_EQ(layer_norm_words({}), "");
}

TEST(LayerNorms, ARowThatComputesGradientsAsWellSaysSo) {
  Record record;
  record.mode = "auto";
  record.layer_ms = {{"backward_and_norms layers.0", 3}, {"backward_and_norms layers.1", 1}};
  EXPECT_EQ(layer_norm_words(record),
            "Norms by layer, auto: layers.0 takes most, 3.00 ms of 4.00 ms (75%), backward "
            "included.");
  EXPECT_THAT(layer_norm_plots({record})[0].caption, HasSubstr("a point holds both"));
  EXPECT_THAT(layer_norm_plots({norms_record()})[0].caption, Not(HasSubstr("holds both")));
}

TEST(LayerNorms, TheTableHasARowForEachLayerWithItsShare) {
  const auto table = layer_norm_table({norms_record()});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->table.rows(), 5u);
  EXPECT_THAT(table->table.csv(), HasSubstr("layers.10,flash,512,4.000,40.0 %,norms"));
  EXPECT_FALSE(layer_norm_table({Record{}}));
}

TEST(LayerNorms, ThePictureNamesItsUnitAndItsLayers) {
  const std::vector<Plot> plots = layer_norm_plots({norms_record()});
  ASSERT_EQ(plots.size(), 1u);
  EXPECT_EQ(plots[0].name, "norms_by_layer");
  for (const char* words : {"ms per step", "'embed'", "'10'", "'head'"})
    EXPECT_THAT(plots[0].script, HasSubstr(words));
  EXPECT_TRUE(layer_norm_plots({Record{}}).empty());
}

}  // namespace
}  // namespace veil::layer_norms_test
