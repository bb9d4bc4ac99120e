#include "models/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/test_weight_files.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Export : public ::testing::Test {
 protected:
  std::vector<std::string> entries(const std::string& folder) const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder))
      result.push_back(entry.path().filename().string());
    std::sort(result.begin(), result.end());
    return result;
  }
  const std::vector<TensorSource> tensors_ = {float_source("a", {2}, {1, 2}),
                                              float_source("b", {3}, {3, 4, 5}),
                                              float_source("c", {1}, {6})};
  const std::vector<std::pair<std::string, std::string>> config_ = {{"config.json", "{}\n"}};
  WeightFiles files_;
};

TEST_F(Export, SmallModelsAreOneFileAndLargeOnesHaveAnIndex) {
  export_model(files_.path("one"), config_, tensors_);
  EXPECT_THAT(entries(files_.path("one")),
              ElementsAre("config.json", "model.safetensors", "veil_export.json"));
  export_model(files_.path("several/"), config_, tensors_, {.shard_bytes = 16});
  EXPECT_THAT(entries(files_.path("several")),
              ElementsAre("config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                          "veil_export.json"));
  const auto index =
      nlohmann::json::parse(read_file(files_.path("several/model.safetensors.index.json")));
  EXPECT_EQ(index["metadata"]["total_size"].get<int>(), 24);
  EXPECT_EQ(index["weight_map"]["b"].get<std::string>(), "model-00002-of-00002.safetensors");
  const Weights one(files_.path("one")), several(files_.path("several"));
  EXPECT_EQ(one.names(), several.names());
  EXPECT_THAT(entries(files_.path()), ElementsAre("one", "several"));
}

TEST_F(Export, ATensorLargerThanTheLimitHasAFileOfItsOwn) {
  export_model(files_.path("m"), config_, tensors_, {.shard_bytes = 1});
  EXPECT_EQ(Weights(files_.path("m")).names().size(), 3u);
  EXPECT_TRUE(fs::exists(files_.path("m/model-00003-of-00003.safetensors")));
}

TEST_F(Export, WeightsThatAreNotAsTheyWereExportedAreNamed) {
  export_model(files_.path("m"), config_, tensors_, {.shard_bytes = 16});
  check_exported_weights(files_.path("m"));
  const std::string file = files_.path("m/model-00002-of-00002.safetensors"),
                    whole = read_file(file);
  for (const size_t place : {size_t{9}, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[place] ^= 1;
    write_file_atomically(file, flipped);
    EXPECT_THAT(complaint([&] { check_exported_weights(files_.path("m")); }),
                HasSubstr(file + ": damaged"));
  }
  write_file_atomically(file, whole);
  // A config may be edited; a folder without the list is not an export of ours.
  write_file_atomically(files_.path("m/config.json"), "{\"a\": 1}\n");
  check_exported_weights(files_.path("m"));
  write_file_atomically(file, whole + "x");
  fs::remove(files_.path("m/veil_export.json"));
  check_exported_weights(files_.path("m"));
}

TEST_F(Export, AFolderWithForeignFilesIsRefusedEvenWithOverwrite) {
  write_file_atomically(files_.path("m/mine.txt"), "x");
  for (const bool overwrite : {false, true}) {
    EXPECT_THAT(complaint([&] {
                  export_model(files_.path("m"), config_, tensors_, {.overwrite = overwrite});
                }),
                HasSubstr("no export of Veil"));
    EXPECT_THAT(entries(files_.path("m")), ElementsAre("mine.txt"));
  }
  // A manifest that something else wrote makes no export of it.
  write_file_atomically(files_.path("m/veil_export.json"), "{\"files\": {\"mine.txt\": 1}}");
  EXPECT_THAT(
      complaint([&] { export_model(files_.path("m"), config_, tensors_, {.overwrite = true}); }),
      HasSubstr("no export of Veil"));
  EXPECT_EQ(read_file(files_.path("m/mine.txt")), "x");
  fs::create_directories(files_.path("empty"));
  export_model(files_.path("empty"), config_, tensors_);
  EXPECT_TRUE(fs::exists(files_.path("empty/model.safetensors")));
  EXPECT_THAT(complaint([&] { export_model(files_.path("m/mine.txt"), config_, tensors_); }),
              HasSubstr("not a folder"));
  EXPECT_THAT(entries(files_.path()), ElementsAre("empty", "m"));
}

TEST_F(Export, AnEarlierExportIsReplacedWhenAskedAndForeignFilesInItStay) {
  export_model(files_.path("m"), config_, tensors_, {.shard_bytes = 16});
  write_file_atomically(files_.path("m/README.md"), "mine");
  EXPECT_THAT(complaint([&] { export_model(files_.path("m"), config_, tensors_); }),
              HasSubstr("earlier export"));
  EXPECT_TRUE(fs::exists(files_.path("m/model-00001-of-00002.safetensors")));
  export_model(files_.path("m"), {{"config.json", "{\"a\": 1}\n"}}, tensors_, {.overwrite = true});
  EXPECT_THAT(entries(files_.path("m")),
              ElementsAre("README.md", "config.json", "model.safetensors", "veil_export.json"));
  EXPECT_EQ(read_file(files_.path("m/README.md")), "mine");
  EXPECT_EQ(read_file(files_.path("m/config.json")), "{\"a\": 1}\n");
  EXPECT_EQ(Weights(files_.path("m")).names().size(), 3u);
  EXPECT_THAT(entries(files_.path()), ElementsAre("m")) << "a temporary folder was left";
}

TEST_F(Export, AFileOfAnExportThatSomebodyElseWroteIsNotReplaced) {
  export_model(files_.path("m"), config_, tensors_);
  write_file_atomically(files_.path("m/tokenizer.json"), "mine");
  const auto again = [&] {
    export_model(files_.path("m"), config_, tensors_, {.overwrite = true});
  };
  EXPECT_THAT(complaint(again), HasSubstr("'tokenizer.json' in it is not the file"));
  fs::remove(files_.path("m/tokenizer.json"));
  write_file_atomically(files_.path("m/config.json"), "{\"edited\": true}\n");
  EXPECT_THAT(complaint(again), HasSubstr("'config.json' in it is not the file"));
  EXPECT_EQ(read_file(files_.path("m/config.json")), "{\"edited\": true}\n");
}

TEST_F(Export, AnExportThatFailsLeavesNothing) {
  auto failing = tensors_;
  failing[1].produce = [](const AppendBytes&) { throw UserError("a rank is gone"); };
  EXPECT_EQ(complaint([&] { export_model(files_.path("m"), config_, failing); }), "a rank is gone");
  EXPECT_TRUE(entries(files_.path()).empty());
}

TEST_F(Export, WhatAKilledProcessLeftIsRemovedByTheNextExportOfTheSameOwnerOnly) {
  const std::string ours = files_.path("m.cafe.0.tmp"), others = files_.path("m.beef.0.tmp");
  for (const std::string& folder : {ours, others})
    write_file_atomically(folder + "/model.safetensors", "half of it");
  export_model(files_.path("m"), config_, tensors_, {.owner = "cafe"});
  EXPECT_THAT(entries(files_.path()), ElementsAre("m", "m.beef.0.tmp"));
  // killed while the files of an earlier export were replaced
  write_file_atomically(files_.path("m/veil_export.json.4321.0.tmp"), "half of it");
  export_model(files_.path("m"), config_, tensors_, {.owner = "cafe"});
  EXPECT_THAT(entries(files_.path("m")),
              ElementsAre("config.json", "model.safetensors", "veil_export.json"));
  EXPECT_EQ(Weights(files_.path("m")).names().size(), 3u);
}

TEST_F(Export, TensorsAreWrittenAsTheyAreAndAsOtherTypes) {
  const Tensor tensor = empty_tensor({2, 3}, at::kFloat, cpu_device());
  for (int i = 0; i < 6; ++i) tensor.data_ptr<float>()[i] = static_cast<float>(i) + 0.00390625F;
  export_model(files_.path("m"), config_,
               {tensor_source("same", tensor, StoredType::f32),
                tensor_source("short", tensor, StoredType::bf16)});
  const Weights weights(files_.path("m"));
  float same[6], rounded[6];
  weights.read(*weights.find("same"), 0, 6, same, StoredType::f32);
  weights.read(*weights.find("short"), 0, 6, rounded, StoredType::f32);
  EXPECT_EQ(same[5], 5.00390625F);
  EXPECT_EQ(rounded[5], 5.0F);
  EXPECT_EQ(rounded[0], 0.00390625F);
  EXPECT_EQ(weights.find("short")->dims, (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace veil
