// Every model among the goldens: its file opens, its tensors are those that golden.json lists, and
// an export of it reads back the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/test_paths.h"
#include "models/export.h"
#include "models/test_weight_files.h"
#include "models/weights.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// $VEIL_GOLDENS, else the goldens beside the repository, else the copy in it.
std::vector<fs::path> golden_models() {
  const fs::path root = source_root();
  std::vector<fs::path> folders{root / "../shared/goldens", root / "tests/goldens"};
  if (const char* const given = std::getenv("VEIL_GOLDENS")) folders = {given};
  std::vector<fs::path> result;
  for (const auto& folder : folders) {
    if (!fs::is_directory(folder / "models")) continue;
    for (const auto& entry : fs::directory_iterator(folder / "models")) {
      if (fs::exists(entry.path() / "golden.json")) result.push_back(entry.path());
    }
    break;
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<WantedTensor> wanted(const fs::path& folder) {
  std::vector<WantedTensor> result;
  const json golden = json::parse(read_file((folder / "golden.json").string()));
  for (const auto& [name, dims] : golden["parameters"].items())
    result.push_back({name, dims.get<std::vector<int64_t>>()});
  return result;
}

TEST(WeightsGolden, goldenFilesHoldTheParametersThatTheyShould) {
  ASSERT_FALSE(golden_models().empty());
  for (const fs::path& folder : golden_models()) {
    check_weights(Weights(folder.string()), wanted(folder));
    // Other spellings of the same weights stand beside it.
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
  for (const fs::path& folder : golden_models()) {
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
