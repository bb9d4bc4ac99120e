#include "models/peft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "models/test_weight_files.h"

namespace veil {
namespace {

using testing::HasSubstr;
using testing::Not;

class Peft : public testing::Test {
 protected:
  // Of a folder with this config and one A of this module, of rank 2; "" if it is read.
  std::string refusal(const std::string& config, const std::string& module) const {
    std::ofstream(files_.path(kAdapterConfig)) << config;
    const std::string name = "base_model.model." + module + kLoraA;
    files_.raw(std::string(kAdapterWeights) + ".safetensors",
               "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}", 8);
    return complaint([&] { read_adapter(files_.path()); });
  }
  WeightFiles files_;
};

TEST_F(Peft, ATensorMustNameOneModule) {
  const std::string config = R"({"peft_type": "LORA", "r": 2})";
  EXPECT_EQ(refusal(config, "model.layers.0.mlp.up_proj"), "");
  for (const char* module : {"", "all", "attention", "model.*"})
    EXPECT_THAT(refusal(config, module), HasSubstr("names no module")) << module;
}

TEST_F(Peft, AnOptionsNameWithALineBreakIsRefusedInOneLine) {
  const std::string said = refusal(R"({"peft_type": "LORA", "r": 2, "a\nb": 1})", "h");
  EXPECT_THAT(said, HasSubstr("is not supported"));
  EXPECT_THAT(said, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace veil
