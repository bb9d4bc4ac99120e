#include "models/lora.h"

#include <gtest/gtest.h>

namespace veil {
namespace {

TEST(Lora, ScaleIsAlphaOverTheRankOrOverItsRoot) {
  EXPECT_EQ((LoraSettings{.rank = 16, .alpha = 8}.scale()), 0.5);
  EXPECT_EQ((LoraSettings{.rank = 16, .alpha = 8, .rslora = true}.scale()), 2);
}

TEST(Lora, TargetsAreEndsOfNamesAtADotPatternsOrGroups) {
  const std::string query = "model.layers.3.self_attn.q_proj",
                    down = "model.layers.3.mlp.down_proj";
  const auto adapted = [](const std::string& target, const std::string& module) {
    return adapts(LoraSettings{.targets = {"nothing", target}}, module);
  };
  EXPECT_TRUE(adapted("q_proj", query));
  EXPECT_TRUE(adapted("self_attn.q_proj", query));
  EXPECT_TRUE(adapted(query, query));
  EXPECT_FALSE(adapted("proj", query)) << "an end begins at a dot";
  EXPECT_FALSE(adapted("q_proj", down));
  EXPECT_TRUE(adapted("model.layers.3.*", down));
  EXPECT_FALSE(adapted("model.layers.2.*", down));
  EXPECT_TRUE(adapted("attention", query));
  EXPECT_FALSE(adapted("attention", down));
  EXPECT_TRUE(adapted("attention", "roberta.encoder.layer.0.attention.self.query"));
  EXPECT_TRUE(adapted("all", down));
  EXPECT_TRUE(is_adapter(query + kLoraA));
  EXPECT_TRUE(is_adapter(query + kLoraB));
  EXPECT_FALSE(is_adapter(query + ".weight"));
}

}  // namespace
}  // namespace veil
