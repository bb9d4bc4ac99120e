#include "models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/test_weight_files.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  void shards(const std::string& map) const {
    write_safetensors(files_.path("model-1.safetensors"), {float_source("a", {2}, {1, 2})});
    write_safetensors(files_.path("model-2.safetensors"),
                      {float_source("b", {3}, {3, 4, 5}), float_source("c", {}, {6})});
    write_file_atomically(files_.path("model.safetensors.index.json"), map);
  }
  std::string opening(const std::string& map) const {
    shards(map);
    return complaint([&] { Weights weights(files_.path()); });
  }
  static std::vector<float> values(const Weights& weights, const std::string& name) {
    const StoredTensor* const tensor = weights.find(name);
    std::vector<float> result(static_cast<size_t>(tensor->elements));
    weights.read(*tensor, 0, tensor->elements, result.data(), StoredType::f32);
    return result;
  }
  WeightFiles files_;
};

TEST_F(WeightsTest, OneFileAndSeveralWithAnIndexReadTheSame) {
  shards(
      R"({"metadata":{"total_size":24},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors"}})");
  write_safetensors(files_.path("single.safetensors"),
                    {float_source("a", {2}, {1, 2}), float_source("b", {3}, {3, 4, 5}),
                     float_source("c", {}, {6})});
  for (const std::string& path : {files_.path(), files_.path("model.safetensors.index.json"),
                                  files_.path("single.safetensors")}) {
    const Weights weights(path);
    EXPECT_THAT(weights.names(), ElementsAre("a", "b", "c")) << path;
    EXPECT_THAT(values(weights, "a"), ElementsAre(1, 2)) << path;
    EXPECT_THAT(values(weights, "b"), ElementsAre(3, 4, 5)) << path;
    EXPECT_THAT(values(weights, "c"), ElementsAre(6)) << path;
    EXPECT_EQ(weights.find("d"), nullptr);
  }
}

TEST_F(WeightsTest, AnIndexThatIsWrongIsRefusedByName) {
  EXPECT_THAT(
      opening(
          R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"}})"),
      HasSubstr("names 'model-3.safetensors' for tensor 'c', and that file is missing"));
  EXPECT_THAT(
      opening(
          R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-2.safetensors","d":"model-1.safetensors"}})"),
      HasSubstr("tensor 'd' is in 'model-1.safetensors', and it is not"));
  EXPECT_THAT(opening(R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})"),
              HasSubstr("tensor 'c' that the index"));
  write_safetensors(files_.path("model-3.safetensors"),
                    {float_source("c", {}, {7}), float_source("a", {2}, {8, 9})});
  EXPECT_THAT(
      opening(
          R"({"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"}})"),
      HasSubstr("a tensor 'c' that the index"))
      << "two files have it";
  for (const char* file : {"../model-1.safetensors", "/etc/x.safetensors", "x/y.safetensors", "..",
                           "", "model.bin", "a\\u0000.safetensors"}) {
    EXPECT_THAT(opening(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", file)),
                HasSubstr("tensor 'a' is mapped to"))
        << file;
  }
  EXPECT_THAT(opening(R"({"weight_map":{"a":7}})"),
              HasSubstr("tensor 'a' is not mapped to a file name"));
  EXPECT_THAT(opening(R"({"weight_map":{"a":"model-1.safetensors","a":"model-1.safetensors"}})"),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(opening(R"({"weight_map":{}})"), HasSubstr("names no tensor"));
  EXPECT_THAT(opening(R"({"weight_map":[]})"), HasSubstr("weight_map"));
  EXPECT_THAT(opening(R"([])"), HasSubstr("weight_map"));
  EXPECT_THAT(opening(R"({)"), HasSubstr("not JSON"));
}

TEST_F(WeightsTest, AFolderWithoutWeightsSaysWhatIsMissingAndWhatIsThere) {
  EXPECT_THAT(complaint([&] { Weights weights(files_.path()); }),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  write_file_atomically(files_.path("pytorch_model.bin"), "x");
  EXPECT_THAT(complaint([&] { Weights weights(files_.path()); }),
              HasSubstr("'pytorch_model.bin' is a pickle"));
  EXPECT_THAT(complaint([&] { Weights weights(files_.path("none")); }), HasSubstr("none"));
}

TEST_F(WeightsTest, APieceIsReadAndConvertedAlone) {
  write_safetensors(files_.path("w.safetensors"), {float_source("w", {2, 3}, {1, 2, 3, 4, 5, 6})});
  const Weights weights(files_.path("w.safetensors"));
  double out[3] = {0, 0, -1};
  weights.read(*weights.find("w"), 3, 2, out, StoredType::f64);
  EXPECT_THAT(out, ElementsAre(4, 5, -1));
  weights.read(*weights.find("w"), 6, 0, out, StoredType::f64);
  EXPECT_THROW(weights.read(*weights.find("w"), 5, 2, out, StoredType::f64), std::logic_error);

  Tensor tensor = empty_tensor({4}, at::kBFloat16, cpu_device());
  read_weight(weights, *weights.find("w"), 2, tensor);
  EXPECT_EQ(tensor.sum().item<float>(), 3 + 4 + 5 + 6);
}

TEST_F(WeightsTest, EveryPieceOfATransposeIsReadRight) {
  write_safetensors(files_.path("w.safetensors"), {float_source("w", {2, 3}, {1, 2, 3, 4, 5, 6})});
  const Weights weights(files_.path("w.safetensors"));
  const std::vector<double> transposed = {1, 4, 2, 5, 3, 6};
  for (size_t first = 0; first <= 6; ++first) {
    for (size_t count = 0; first + count <= 6; ++count) {
      std::vector<double> out(count + 1, -1);
      weights.read_transposed(*weights.find("w"), static_cast<int64_t>(first),
                              static_cast<int64_t>(count), out.data(), StoredType::f64);
      std::vector<double> expected(transposed.begin() + static_cast<ptrdiff_t>(first),
                                   transposed.begin() + static_cast<ptrdiff_t>(first + count));
      expected.push_back(-1);
      EXPECT_EQ(out, expected) << first << " " << count;
    }
  }
}

TEST_F(WeightsTest, NamesAreFoundWithAndWithoutThePrefix) {
  write_safetensors(files_.path("w.safetensors"),
                    {float_source("h.0.w", {1}, {1}), float_source("transformer.h.1.w", {1}, {2})});
  const Weights weights(files_.path("w.safetensors"));
  const WeightNames rule{.prefix = "transformer.", .ignored = {}};
  for (const char* name : {"h.0.w", "transformer.h.0.w"}) {
    ASSERT_TRUE(find_weight(weights, name, rule)) << name;
    EXPECT_EQ(find_weight(weights, name, rule)->name, "h.0.w");
  }
  for (const char* name : {"h.1.w", "transformer.h.1.w"}) {
    ASSERT_TRUE(find_weight(weights, name, rule)) << name;
    EXPECT_EQ(find_weight(weights, name, rule)->name, "transformer.h.1.w");
  }
  EXPECT_FALSE(find_weight(weights, "h.2.w", rule));
  EXPECT_FALSE(find_weight(weights, "transformer.h.0.w", {}));
}

TEST_F(WeightsTest, AllThatIsMissingExtraOrUnfitIsSaidInOneLine) {
  const TensorSource bytes{.name = "bytes",
                           .dtype = StoredType::u8,
                           .dims = {1},
                           .produce = [](const AppendBytes& append) { append("x"); }};
  write_safetensors(
      files_.path("w.safetensors"),
      {float_source("a", {2, 1}, {1, 2}), float_source("h.0.attn.bias", {1}, {1}), bytes,
       float_source("h.0.attn.c_attn.bias", {1}, {1}), float_source("b", {1}, {1})});
  const Weights weights(files_.path("w.safetensors"));
  const WeightNames rule{.prefix = "transformer.", .ignored = {"h.*.attn.bias"}};
  EXPECT_EQ(complaint([&] {
              check_weights(weights,
                            {{"a", {1, 2}},
                             {"m1", {1}},
                             {"m2", {1}},
                             {"m3", {1}},
                             {"m4", {1}},
                             {"m5", {1}},
                             {"bytes", {1}},
                             {"transformer.b", {1}}},
                            rule);
            }),
            fmt::format("'{}' does not hold this model: 5 tensors are missing: m1, m2, m3, m4, "
                        "...; 1 tensor is not "
                        "the model's: h.0.attn.c_attn.bias; "
                        "2 tensors do not fit: a is F32 [2, 1], the model wants [1, 2], bytes is "
                        "U8 [1], the model "
                        "wants F64, F32, BF16 or F16",
                        files_.path("w.safetensors")));
  EXPECT_EQ(complaint([&] {
              check_weights(weights, {{"a", {2, 1}}, {"b", {1}}, {"h.0.attn.c_attn.bias", {1}}},
                            {.prefix = "", .ignored = {"*.attn.bias", "bytes"}});
            }),
            "");
}

}  // namespace
}  // namespace veil
