// Every model among the goldens: its file opens, its tensors are those that golden.json lists, and
// an export of it reads back the same.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "models/export.h"
#include "models/test_weight_files.h"
#include "models/weights.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<WantedTensor> wanted(const fs::path& folder) {
  std::vector<WantedTensor> result;
  const json golden = json::parse(read_file((folder / "golden.json").string()));
  for (const auto& [name, dims] : golden["parameters"].items())
    result.push_back({name, dims.get<std::vector<int64_t>>()});
  return result;
}

TEST(WeightsGolden, goldenFilesHoldTheParametersThatTheyShould) {
  for (const fs::path& folder : golden_model_folders()) {
    check_weights(Weights(folder.string()), wanted(folder));
    // Other spellings of the same weights stand next to it.
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.path().filename().string().starts_with("model_")) continue;
      check_weights(
          Weights(entry.path().string()), wanted(folder),
          {.prefix = "transformer.", .ignored = {"h.*.attn.bias", "h.*.attn.masked_bias"}});
      EXPECT_NE(complaint([&] {
                  check_weights(Weights(entry.path().string()), wanted(folder),
                                {.prefix = "transformer."});
                }),
                "")
          << "the mask is no parameter";
      EXPECT_NE(complaint([&] { check_weights(Weights(entry.path().string()), wanted(folder)); }),
                "");
    }
    EXPECT_NE(complaint([&] {
                auto more = wanted(folder);
                more.push_back({"one.more", {1}});
                check_weights(Weights(folder.string()), more);
              }),
              "");
  }
}

TEST(WeightsGolden, goldenModelsExportedReadBackInEveryByte) {
  for (const fs::path& folder : golden_model_folders()) {
    const SafetensorsFile file((folder / "model.safetensors").string());
    const WeightFiles files;
    for (const int64_t shard_bytes : {int64_t{1} << 40, int64_t{20000}}) {
      std::vector<TensorSource> sources;
      for (const StoredTensor& tensor : file.tensors()) {
        sources.push_back({tensor.name, tensor.dtype, tensor.dims, [&](const AppendBytes& append) {
                             append(bytes_of(file, tensor.name));
                           }});
      }
      export_model(files.path("m"), {{"config.json", read_file((folder / "config.json").string())}},
                   sources, {.shard_bytes = shard_bytes, .overwrite = true});
      const Weights weights(files.path("m"));
      check_weights(weights, wanted(folder));
      for (const StoredTensor& tensor : file.tensors()) {
        std::string bytes(file.bytes(tensor).size(), '\0');
        weights.read(*weights.find(tensor.name), 0, tensor.elements, bytes.data(), tensor.dtype);
        EXPECT_EQ(bytes, bytes_of(file, tensor.name)) << folder << " " << tensor.name;
      }
      if (shard_bytes > 20000) {
        EXPECT_EQ(read_file(files.path("m/model.safetensors")), read_file(file.path()))
            << "the library that made it writes it as Veil does";
      }
    }
  }
}

}  // namespace
}  // namespace veil
