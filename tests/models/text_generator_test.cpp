// Generated text: greedy continuations are transformers', and a text does not depend on its
// neighbours.
#include "models/text_generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "golden_folder.h"
#include "kernels/token_draw.h"
#include "models/family.h"
#include "models/load.h"
#include "models/whole_params.h"

namespace veil::text_generator_test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

// A model of the goldens, whole, in one type.
struct LoadedModel {
  LanguageConfig config;
  Model model;
  std::unique_ptr<WholeParams> params;
  DType dtype;
  Device device;

  LoadedModel(const fs::path& folder, DType type, Device on, AttentionKind attention)
      : config(read_config((folder / "config.json").string())),
        model(language_model(config, {.tokens = config.positions, .attention = attention})),
        dtype(type),
        device(on) {
    const InitialWeights weights =
        load_weights((folder / "model.safetensors").string(), config, model.params);
    params = std::make_unique<WholeParams>(model.params, dtype, device, weights.fill);
  }
  TextGenerator generator() const { return {model, *params, config.positions, dtype, device}; }
};

fs::path model_folder(const fs::path& goldens, const std::string& name) {
  for (const char* const kind : {"models", "families"}) {
    if (fs::exists(goldens / kind / name)) return goldens / kind / name;
  }
  ADD_FAILURE() << "no golden model is called " << name;
  return {};
}

struct Continuation {
  Ids prompt, expected;
};
// By model.
std::map<std::string, std::vector<Continuation>> greedy_goldens(const fs::path& goldens) {
  const auto json = nlohmann::json::parse(read_file((goldens / "generation.json").string()));
  std::map<std::string, std::vector<Continuation>> found;
  for (const auto& one : json.at("greedy"))
    found[one.at("model")].push_back({one.at("prompt"), one.at("new_ids")});
  EXPECT_FALSE(found.empty());
  return found;
}

void greedy_text_is_transformers(Device device, const std::vector<DType>& types) {
  const fs::path goldens = goldens_with("generation.json");
  for (const auto& [name, continuations] : greedy_goldens(goldens)) {
    for (const DType dtype : types) {
      for (const AttentionKind attention : {AttentionKind::automatic, AttentionKind::math}) {
        SCOPED_TRACE(name + " " + dtype_name(dtype) + " attention " + name_of(attention));
        const LoadedModel loaded(model_folder(goldens, name), dtype, device, attention);
        TextGenerator generator = loaded.generator();
        GenerateOptions options;
        options.rule.temperature = 0;
        std::vector<Ids> prompts;
        for (const Continuation& one : continuations) {
          options.new_tokens = std::ssize(one.expected);
          EXPECT_EQ(generator.run({one.prompt}, options)[0].tokens, one.expected);
          prompts.push_back(one.prompt);
        }
        // Together, prompts of different lengths side by side.
        options.new_tokens = 1000;
        for (const Continuation& one : continuations)
          options.new_tokens = std::min<int64_t>(options.new_tokens, std::ssize(one.expected));
        const auto together = generator.run(prompts, options);
        for (size_t i = 0; i < prompts.size(); ++i) {
          const Ids& whole = continuations[i].expected;
          EXPECT_EQ(together[i].tokens, Ids(whole.begin(), whole.begin() + options.new_tokens));
          EXPECT_FALSE(together[i].ended);
        }
      }
    }
  }
}

TEST(TextGeneratorGolden, GreedyTextIsTransformersTokenForToken) {
  greedy_text_is_transformers(cpu_device(), {at::kDouble, at::kFloat});
}
TEST(GpuTextGeneratorGolden, GreedyTextIsTransformersTokenForToken) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  greedy_text_is_transformers(gpu_device(0), {at::kFloat});
}

TEST(TextGeneratorGolden, FilteredDistributionsAreTheGivenOnes) {
  const fs::path goldens = goldens_with("generation.json");
  const auto json = nlohmann::json::parse(read_file((goldens / "generation.json").string()));
  ASSERT_FALSE(json.at("sampling").empty());
  for (const auto& one : json.at("sampling")) {
    const auto given = one.at("logits").get<std::vector<double>>();
    const DrawRule rule{
        .temperature = one.at("temperature"), .top_k = one.at("top_k"), .top_p = one.at("top_p")};
    const std::vector<double> found =
        token_distribution(std::vector<float>(given.begin(), given.end()), rule);
    const auto expected = one.at("probs").get<std::vector<double>>();
    ASSERT_EQ(found.size(), expected.size());
    // Logits are rounded to fp32: their error, 6e-8 of the largest, is divided by the temperature.
    double largest = 0;
    for (const double logit : given) largest = std::max(largest, std::abs(logit));
    const double allowed = 1e-8 + 2 * 6e-8 * largest / one.at("temperature").get<double>();
    for (size_t v = 0; v < found.size(); ++v) {
      EXPECT_EQ(found[v] == 0, expected[v] == 0) << v;
      EXPECT_NEAR(found[v], expected[v], allowed) << v;
    }
    if (one.at("model").is_null()) continue;
    const LoadedModel loaded(model_folder(goldens, one.at("model")), at::kDouble, cpu_device(),
                             AttentionKind::automatic);
    const Tensor logits = loaded.generator().logits_after({one.at("prompt").get<Ids>()});
    for (size_t v = 0; v < given.size(); ++v)
      EXPECT_NEAR(logits[0][static_cast<int64_t>(v)].item<double>(), given[v], 1e-10 * largest);
  }
}

// A golden model, to generate with.
LoadedModel some_model(DType dtype = at::kDouble, Device device = cpu_device()) {
  return {model_folder(goldens_with("generation.json"), "llama-tiny"), dtype, device,
          AttentionKind::automatic};
}

TEST(TextGenerator, ATextDependsOnItsNumberAndNotOnItsNeighbours) {
  const LoadedModel loaded = some_model();
  TextGenerator generator = loaded.generator();
  GenerateOptions options;
  options.new_tokens = 12;
  options.seed = 4;
  const std::vector<Ids> prompts{{1, 2, 3}, {4, 5}, {6}, {7, 8, 9, 10}};
  const auto together = generator.run(prompts, options, 20);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = generator.run({prompts[i]}, options, 20 + static_cast<int64_t>(i));
    EXPECT_EQ(alone[0].tokens, together[i].tokens) << i;
    const auto other = generator.run({prompts[i]}, options, 40 + static_cast<int64_t>(i));
    EXPECT_NE(other[0].tokens, together[i].tokens) << i;
  }
}

TEST(TextGenerator, ATextEndsWithItsFirstEndTokenAndTheOthersGoOn) {
  const LoadedModel loaded = some_model();
  TextGenerator generator = loaded.generator();
  GenerateOptions options;
  options.rule.temperature = 0;
  options.new_tokens = 10;
  const std::vector<Ids> prompts{{1, 2, 3}, {4, 5}};
  const auto whole = generator.run(prompts, options);
  // a token of the first text that the second does not have, so that only one ends
  size_t place = 0;
  const auto has = [](const Ids& text, int32_t token) {
    return std::find(text.begin(), text.end(), token) != text.end();
  };
  while (place < 9 && has(whole[1].tokens, whole[0].tokens[place])) ++place;
  ASSERT_FALSE(has(whole[1].tokens, whole[0].tokens[place]));
  options.end_tokens = {whole[0].tokens[place]};
  const auto cut = generator.run(prompts, options);
  EXPECT_TRUE(cut[0].ended);
  EXPECT_LE(cut[0].tokens.size(), place + 1);
  EXPECT_EQ(cut[0].tokens.back(), options.end_tokens[0]);
  EXPECT_EQ(cut[1].tokens, whole[1].tokens);
  EXPECT_FALSE(cut[1].ended);
}

TEST(TextGenerator, WhatDoesNotFitIsRefusedInOneLine) {
  const LoadedModel loaded = some_model();
  TextGenerator generator = loaded.generator();
  GenerateOptions options;
  EXPECT_THROW(generator.run({{}}, options), UserError);
  EXPECT_THROW(generator.run({{static_cast<int32_t>(loaded.config.vocabulary)}}, options),
               UserError);
  options.new_tokens = loaded.config.positions + 1;
  EXPECT_THROW(generator.run({{1}}, options), UserError);
  options.new_tokens = loaded.config.positions;  // the last new token needs no position
  EXPECT_EQ(std::ssize(generator.run({{1}}, options)[0].tokens), loaded.config.positions);
}

TEST(GpuTextGenerator, CapturedStepsMakeTheSameTextAsStepsOneByOne) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const LoadedModel loaded = some_model(at::kBFloat16, gpu_device(0));
  TextGenerator generator = loaded.generator();
  GenerateOptions options;
  options.new_tokens = 20;
  options.rule = {.temperature = 0.9f, .top_k = 30, .top_p = 0.95, .repetition_penalty = 1.1f};
  const std::vector<Ids> prompts{{1, 2, 3}, {4, 5}, {6}};
  options.graph = false;
  const auto plain = generator.run(prompts, options);
  options.graph = true;
  for (int i = 0; i < 2; ++i) {
    const auto captured = generator.run(prompts, options);
    for (size_t p = 0; p < prompts.size(); ++p) EXPECT_EQ(captured[p].tokens, plain[p].tokens) << p;
  }
}

}  // namespace
}  // namespace veil::text_generator_test
