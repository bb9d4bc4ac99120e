#include "models/classifier_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/adapter_task.h"
#include "models/family.h"
#include "models/test_weight_files.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::IsEmpty;

Json named(const Json& id2label) {
  return {{"id2label", id2label}};
}

TEST(ClassifierLabels, NamesAreReadInTheOrderOfTheirNumbers) {
  EXPECT_THAT(named_labels(named({{"1", "good"}, {"0", "bad"}})), ElementsAre("bad", "good"));
  Json config;
  write_label_names({"bad", "good"}, config);
  EXPECT_THAT(named_labels(config), ElementsAre("bad", "good"));
  EXPECT_EQ(config["label2id"], (Json{{"bad", 0}, {"good", 1}}));
}

TEST(ClassifierLabels, WhatIsNotOneNameForEachLabelCountsAsNone) {
  for (const Json& id2label :
       {Json(), Json::object(), Json::array({"a", "b"}), Json{{"0", "LABEL_0"}, {"1", "LABEL_1"}},
        Json{{"0", "a"}, {"2", "b"}}, Json{{"0", "a"}, {"00", "b"}}, Json{{"0", "a"}, {"-1", "b"}},
        Json{{"0", "a"}, {"x", "b"}}, Json{{"0", "a"}, {"1", "a"}}, Json{{"0", "a"}, {"1", 7}},
        Json{{"0", "a"}, {"1", ""}}})
    EXPECT_THAT(named_labels(named(id2label)), IsEmpty()) << id2label.dump();
  EXPECT_THAT(named_labels(Json()), IsEmpty());
}

TEST(ClassifierLabels, AHeadHasAsManyLabelsAsItsLastMapHasRows) {
  const WeightFiles files;
  const auto stored = [&](const std::string& name, const char* family, const std::string& prefix) {
    const std::string file = files.raw(
        "model.safetensors",
        "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[5,2],\"data_offsets\":[0,40]}}", 40);
    return stored_labels(file, prefix, family_of(preset_config(family).value()).classifier_head);
  };
  EXPECT_EQ(stored("score.weight", "llama-tiny", "model."), 5);
  EXPECT_EQ(stored("classifier.out_proj.weight", "roberta-tiny", "roberta."), 5);
  EXPECT_EQ(stored("base_model.model.score.weight", "llama-tiny", "base_model.model."), 5);
  EXPECT_EQ(stored("lm_head.weight", "llama-tiny", "model."), std::nullopt);
  EXPECT_EQ(stored("classifier.dense.weight", "roberta-tiny", "roberta."), std::nullopt);
}

TEST(AdapterTask, IsWhatPeftCallsIt) {
  const auto task = [](const Json& type) { return adapter_task(Json{{"task_type", type}}); };
  EXPECT_EQ(task("SEQ_CLS"), Task::sequence_classification);
  EXPECT_EQ(task("CAUSAL_LM"), Task::causal_lm);
  for (const Json& other : {Json(), Json("TOKEN_CLS"), Json(7)})
    EXPECT_EQ(task(other), std::nullopt) << other.dump();
}

}  // namespace
}  // namespace veil
