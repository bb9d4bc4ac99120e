#include "privacy/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "models/safetensors.h"

namespace veil::privacy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

std::vector<double> stored(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << file.path() << " has no " << name;
  if (!tensor) return {};
  EXPECT_EQ(tensor->dtype, StoredType::f64) << name;
  const auto bytes = file.bytes(*tensor);
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(ClipGolden, EveryModelsGoldenCoefficientsAreMet) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(goldens_with("models") / "models")) {
    if (!std::filesystem::exists(entry.path() / "golden.safetensors")) continue;
    ++models;
    const SafetensorsFile file((entry.path() / "golden.safetensors").string());
    const double clip_norm =
        nlohmann::json::parse(std::ifstream(entry.path() / "golden.json")).at("clip_norm").get<double>();
    const std::vector<double> norms = stored(file, "expected.norm"), expected = stored(file, "expected.clip_coef");
    ASSERT_EQ(norms.size(), expected.size());
    ASSERT_FALSE(norms.empty());
    // The squared norm as a step has it: added up over the parameters.
    std::vector<double> squares(norms.size());
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.name.rfind("expected.sq_norm.", 0) != 0) continue;
      const std::vector<double> part = stored(file, tensor.name);
      for (size_t i = 0; i < squares.size(); ++i) squares[i] += part[i];
    }
    const Coefficients made = clip_coefficients(ClipFunction::abadi, squares, clip_norm);
    EXPECT_EQ(made.bad_samples, 0);
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_NEAR(made.values[i], expected[i], 1e-13) << entry.path() << " sample " << i;
      EXPECT_NEAR(clip_coefficients(ClipFunction::adaptive, {norms[i] * norms[i]}, clip_norm).values[0], expected[i],
                  1e-14);
    }
  }
  EXPECT_GT(models, 0);
}

TEST(Clip, NoSampleMovesTheSumByMoreThanC) {
  for (const ClipFunction function : {ClipFunction::abadi, ClipFunction::automatic, ClipFunction::adaptive}) {
    for (const double clip_norm : {1e-8, 0.1, 1.0, 300.0}) {
      for (double norm = 1e-12; norm < 1e12; norm *= 1.7) {
        const double moved = norm * clip_coefficients(function, {norm * norm}, clip_norm).values[0];
        EXPECT_LE(moved, clip_norm * (1 + 4e-16)) << name_of(function) << " norm " << norm;
      }
    }
  }
}

TEST(Clip, SmallGradientsStayOrGrow) {
  EXPECT_EQ(clip_coefficients(ClipFunction::abadi, {0.25}, 1).values[0], 1);
  EXPECT_EQ(clip_coefficients(ClipFunction::abadi, {0}, 1).values[0], 1);
  EXPECT_DOUBLE_EQ(clip_coefficients(ClipFunction::automatic, {0.25}, 1).values[0], 1 / 0.51);
  EXPECT_DOUBLE_EQ(clip_coefficients(ClipFunction::automatic, {0}, 1).values[0], 100);
  EXPECT_DOUBLE_EQ(clip_coefficients(ClipFunction::abadi, {16}, 2).values[0], 2 / 4.000001);
}

TEST(Clip, WhatIsNotFiniteContributesExactlyNothingAndIsCounted) {
  for (const ClipFunction function : {ClipFunction::abadi, ClipFunction::automatic, ClipFunction::adaptive}) {
    const Coefficients made = clip_coefficients(function, {1, kNan, kInfinity, 4, -kInfinity}, 1);
    EXPECT_EQ(made.bad_samples, 3);
    EXPECT_EQ(made.values[1], 0);
    EXPECT_EQ(made.values[2], 0);
    EXPECT_EQ(made.values[4], 0);
    EXPECT_GT(made.values[0], 0);
    EXPECT_GT(made.values[3], 0);
  }
}

TEST(Clip, ASquareBelowZeroIsZero) {
  for (const ClipFunction function : {ClipFunction::abadi, ClipFunction::automatic}) {
    const Coefficients made = clip_coefficients(function, {-1e-9, 0}, 0.5);
    EXPECT_EQ(made.values[0], made.values[1]);
    EXPECT_EQ(made.bad_samples, 0);
  }
}

TEST(Clip, LayersAreClippedApartAndTogetherStayWithinTheirSensitivity) {
  const std::vector<double> clip_norms{0.5, 2, 1};
  EXPECT_DOUBLE_EQ(layer_sensitivity(clip_norms), std::sqrt(5.25));
  const std::vector<double> squares{4, 0.01, 100, 1, 1e6, 0};  // [3 layers, 2 samples]
  const Coefficients made = layer_coefficients(squares, clip_norms);
  for (size_t sample = 0; sample < 2; ++sample) {
    double moved = 0;
    for (size_t layer = 0; layer < 3; ++layer) {
      const size_t at = layer * 2 + sample;
      EXPECT_EQ(made.values[at], clip_coefficients(ClipFunction::abadi, {squares[at]}, clip_norms[layer]).values[0]);
      moved += made.values[at] * made.values[at] * squares[at];
    }
    EXPECT_LE(std::sqrt(moved), layer_sensitivity(clip_norms) * (1 + 4e-16));
  }
  EXPECT_DOUBLE_EQ(layer_sensitivity(equal_layer_norms(3, 17)), 3);
}

TEST(Clip, ASampleThatIsBadInOneLayerIsLeftOutOfAll) {
  const Coefficients made = layer_coefficients({1, 1, 1, kNan, 1, kInfinity}, {1, 1});  // [2 layers, 3 samples]
  EXPECT_EQ(made.bad_samples, 2);
  EXPECT_EQ(made.values[0], 0);
  EXPECT_GT(made.values[1], 0);
  EXPECT_EQ(made.values[2], 0);
  EXPECT_EQ(made.values[3], 0);
  EXPECT_GT(made.values[4], 0);
  EXPECT_EQ(made.values[5], 0);
}

TEST(AdaptiveClip, OneSampleMovesTheCountByAHalf) {
  const double all = clip_count({1, 9, 0.25, 16, -1e-9}, 2);
  EXPECT_DOUBLE_EQ(all, 0.5);
  for (const double added : {0.01, 100.0})
    EXPECT_DOUBLE_EQ(std::abs(clip_count({1, 9, 0.25, 16, -1e-9, added}, 2) - all), 0.5);
  EXPECT_EQ(clip_count({1, 9, 0.25, 16, -1e-9, kNan, kInfinity}, 2), all);
  EXPECT_EQ(clip_count({}, 2), 0);
}

TEST(AdaptiveClip, TheCountsNoiseHasItsDeviationAndBelongsToItsStep) {
  const AdaptiveClip adaptive{.quantile = 0.5, .rate = 0.2, .count_deviation = 3};
  const ChaChaKey key{{1, 2, 3}};
  const int64_t steps = 20'000;
  double sum = 0, squares = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const double noise = noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, step) - 7;
    sum += noise;
    squares += noise * noise;
  }
  EXPECT_NEAR(sum / steps, 0, 5 * 3 / std::sqrt(steps));
  EXPECT_NEAR(squares / steps, 9, 5 * 9 * std::sqrt(2.0 / steps));
  EXPECT_EQ(noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5),
            noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5));
  EXPECT_NE(noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 5),
            noisy_clip_count(7, adaptive, NoiseGenerator::secure, key, 6));
}

// Without noise C settles where the wanted part of the norms lies below it.
TEST(AdaptiveClip, FollowsTheQuantile) {
  std::vector<double> squares;
  for (int i = 1; i <= 1000; ++i) squares.push_back(i * 0.01 * i * 0.01);  // norms 0.01 to 10, evenly
  for (const double quantile : {0.2, 0.5, 0.9}) {
    const AdaptiveClip adaptive{.quantile = quantile, .rate = 0.2, .count_deviation = 50};
    for (const double start : {0.01, 100.0}) {
      double clip_norm = start;
      for (int step = 0; step < 300; ++step)
        clip_norm = next_clip_norm(adaptive, clip_norm, clip_count(squares, clip_norm), 1000);
      EXPECT_NEAR(clip_norm, 10 * quantile, 0.05) << "from " << start;
    }
  }
}

// Two Gaussians released together cost what one with 1/sigma^2 = 1/sigma_g^2 + 1/(2 sigma_b)^2 does.
TEST(AdaptiveClip, CountAndGradientsTogetherCostWhatSigmaDoes) {
  for (const double sigma : {0.5, 1.0, 4.0}) {
    const double count = 10, gradient = adaptive_gradient_sigma(sigma, count);
    EXPECT_GT(gradient, sigma);
    EXPECT_NEAR(1 / (gradient * gradient) + 1 / (4 * count * count), 1 / (sigma * sigma), 1e-12 / (sigma * sigma));
  }
  EXPECT_NEAR(adaptive_gradient_sigma(1, 1), 1 / std::sqrt(0.75), 1e-15);
  EXPECT_THROW(adaptive_gradient_sigma(1, 0.5), UserError);
  EXPECT_THROW(adaptive_gradient_sigma(1, kNan), UserError);
}

}  // namespace
}  // namespace veil::privacy
