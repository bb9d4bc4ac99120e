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

TEST_F(Peft, AnAdapterOnAModelThatItDoesNotNameIsNoticed) {
  PeftAdapter adapter;
  adapter.folder = "tuned";
  const auto notice = [&](const char* base, const char* name, const char* folder = "") {
    adapter.config["base_model_name_or_path"] = base;
    return other_base_notice(adapter, name, folder);
  };
  EXPECT_EQ(notice("meta-llama/Llama-3.2-1B", "llama3.2-1b"), "");
  EXPECT_EQ(notice("meta-llama/Llama-3.2-1B", "./models/Llama-3.2-1B/"), "");
  EXPECT_EQ(notice("gpt2", "openai-community/gpt2"), "");
  EXPECT_EQ(notice("/hub/models--org--tiny/snapshots/0f1e", "org/tiny"), "");
  EXPECT_EQ(notice("org/tiny", "0f1e", "/hub/models--org--tiny/snapshots/0f1e"), "");
  EXPECT_EQ(notice("../base", "some/base"), "");
  EXPECT_EQ(notice("", "base"), "");
  EXPECT_EQ(notice("org/one", "org/two", "/models/two"),
            "tuned/adapter_config.json names org/one as its base; it is put on org/two");
  adapter.config["base_model_name_or_path"] = nullptr;
  EXPECT_EQ(other_base_notice(adapter, "base", ""), "");
}

}  // namespace
}  // namespace veil
