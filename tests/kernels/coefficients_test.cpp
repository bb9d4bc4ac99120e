#include "kernels/coefficients.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "golden_folder.h"
#include "models/safetensors.h"
#include "privacy/clip.h"

namespace veil {
namespace {

using privacy::AdaptiveClip;
using privacy::ClipFunction;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct Clipped {
  std::vector<double> values;  // [layers, samples]
  ClipTally tally;
};

Tensor doubles(const std::vector<double>& values, Device device) {
  return at::tensor(values, at::kDouble).to(device);
}

// The kernel on squared norms [params, samples]; parameter p is clipped with layer layers[p].
Clipped clip(Device device, ClipFunction function, const std::vector<double>& squared,
             const std::vector<int>& layers, const std::vector<double>& clip_norms) {
  const auto params = static_cast<int64_t>(layers.size()),
             samples = static_cast<int64_t>(squared.size()) / params,
             all = static_cast<int64_t>(clip_norms.size());
  CoefficientsOf of;
  of.squared = doubles(squared, device).view({params, samples});
  of.layers = at::tensor(layers, at::kInt).to(device);
  of.clip_norms = doubles(clip_norms, device);
  of.end_layer = static_cast<int>(all);
  of.function = function;
  const auto options = at::TensorOptions().dtype(at::kDouble).device(device);
  const Tensor coefficients = at::zeros({all, samples}, options),
               tally = at::zeros({kClipTally}, options);
  clip_coefficients(of, coefficients, tally);
  const Tensor on_cpu = coefficients.cpu();
  Clipped found;
  found.values.assign(on_cpu.data_ptr<double>(), on_cpu.data_ptr<double>() + all * samples);
  std::memcpy(&found.tally, tally.cpu().data_ptr<double>(), sizeof found.tally);
  return found;
}

// One parameter, one layer.
Clipped clip(Device device, ClipFunction function, const std::vector<double>& squared,
             double clip_norm) {
  return clip(device, function, squared, {0}, {clip_norm});
}

// A layer for each parameter.
Clipped clip_layers(Device device, const std::vector<double>& squared,
                    const std::vector<double>& clip_norms) {
  std::vector<int> layers;
  for (size_t layer = 0; layer < clip_norms.size(); ++layer)
    layers.push_back(static_cast<int>(layer));
  return clip(device, ClipFunction::per_layer, squared, layers, clip_norms);
}

double clip_count(Device device, const std::vector<double>& squared, double clip_norm) {
  return clip(device, ClipFunction::adaptive, squared, clip_norm).tally.clip_count;
}

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

void every_models_golden_coefficients_are_met(Device device) {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(goldens_with("models") / "models")) {
    if (!std::filesystem::exists(entry.path() / "golden.safetensors")) continue;
    ++models;
    const SafetensorsFile file((entry.path() / "golden.safetensors").string());
    const double clip_norm = nlohmann::json::parse(std::ifstream(entry.path() / "golden.json"))
                                 .at("clip_norm")
                                 .get<double>();
    const std::vector<double> norms = stored(file, "expected.norm"),
                              expected = stored(file, "expected.clip_coef");
    ASSERT_EQ(norms.size(), expected.size());
    ASSERT_FALSE(norms.empty());
    // As a step has them: by parameter.
    std::vector<double> squares;
    std::vector<int> layers;
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.name.rfind("expected.sq_norm.", 0) != 0) continue;
      const std::vector<double> part = stored(file, tensor.name);
      ASSERT_EQ(part.size(), norms.size());
      squares.insert(squares.end(), part.begin(), part.end());
      layers.push_back(0);
    }
    const Clipped made = clip(device, ClipFunction::abadi, squares, layers, {clip_norm});
    EXPECT_EQ(made.tally.bad_samples, 0);
    for (size_t i = 0; i < norms.size(); ++i) {
      EXPECT_NEAR(made.values[i], expected[i], 1e-13) << entry.path() << " sample " << i;
      EXPECT_NEAR(clip(device, ClipFunction::adaptive, {norms[i] * norms[i]}, clip_norm).values[0],
                  expected[i], 1e-14);
    }
  }
  EXPECT_GT(models, 0);
}

void no_sample_moves_the_sum_by_more_than_c(Device device) {
  std::vector<double> norms, squares;
  for (double norm = 1e-12; norm < 1e12; norm *= 1.7) {
    norms.push_back(norm);
    squares.push_back(norm * norm);
  }
  for (const ClipFunction function :
       {ClipFunction::abadi, ClipFunction::automatic, ClipFunction::psac, ClipFunction::adaptive}) {
    for (const double clip_norm : {1e-8, 0.1, 1.0, 300.0}) {
      const Clipped made = clip(device, function, squares, clip_norm);
      for (size_t i = 0; i < norms.size(); ++i) {
        EXPECT_LE(norms[i] * made.values[i], clip_norm * (1 + 4e-16))
            << name_of(function) << " norm " << norms[i];
      }
    }
  }
}

void small_gradients_stay_or_grow(Device device) {
  EXPECT_EQ(clip(device, ClipFunction::abadi, {0.25}, 1).values[0], 1);
  EXPECT_EQ(clip(device, ClipFunction::abadi, {0}, 1).values[0], 1);
  EXPECT_DOUBLE_EQ(clip(device, ClipFunction::automatic, {0.25}, 1).values[0], 1 / 0.51);
  EXPECT_DOUBLE_EQ(clip(device, ClipFunction::automatic, {0}, 1).values[0], 100);
  EXPECT_DOUBLE_EQ(clip(device, ClipFunction::abadi, {16}, 2).values[0], 2 / 4.000001);
  // psac gives small gradients more weight than abadi, but the smallest less than automatic does.
  EXPECT_DOUBLE_EQ(clip(device, ClipFunction::psac, {0.25}, 1).values[0], 1 / (0.5 + 0.01 / 0.51));
  EXPECT_DOUBLE_EQ(clip(device, ClipFunction::psac, {0}, 1).values[0], 1);
  EXPECT_LT(clip(device, ClipFunction::psac, {1e-4}, 1).values[0],
            clip(device, ClipFunction::psac, {1e-2}, 1).values[0]);
}

void what_is_not_finite_contributes_exactly_nothing_and_is_counted(Device device) {
  for (const ClipFunction function :
       {ClipFunction::abadi, ClipFunction::automatic, ClipFunction::psac, ClipFunction::adaptive}) {
    const double longest = kLongestNorm * kLongestNorm;
    const Clipped made =
        clip(device, function,
             {1, kNan, kInfinity, 4, -kInfinity, longest, std::nextafter(longest, kInfinity)}, 1);
    EXPECT_EQ(made.tally.samples, 7);
    EXPECT_EQ(made.tally.bad_samples, 4) << "and one that is too long";
    EXPECT_GT(made.values[5], 0);
    EXPECT_EQ(made.values[6], 0);
    EXPECT_EQ(made.values[1], 0);
    EXPECT_EQ(made.values[2], 0);
    EXPECT_EQ(made.values[4], 0);
    EXPECT_GT(made.values[0], 0);
    EXPECT_GT(made.values[3], 0);
  }
}

void a_square_below_zero_is_zero(Device device) {
  for (const ClipFunction function :
       {ClipFunction::abadi, ClipFunction::automatic, ClipFunction::psac}) {
    const Clipped made = clip(device, function, {-1e-9, 0}, 0.5);
    EXPECT_EQ(made.values[0], made.values[1]);
    EXPECT_EQ(made.tally.bad_samples, 0);
  }
}

void layers_are_clipped_apart_and_together_stay_within_their_sensitivity(Device device) {
  const std::vector<double> clip_norms{0.5, 2, 1};
  EXPECT_DOUBLE_EQ(privacy::layer_sensitivity(clip_norms), std::sqrt(5.25));
  const std::vector<double> squares{4, 0.01, 100, 1, 1e6, 0};  // [3 layers, 2 samples]
  const Clipped made = clip_layers(device, squares, clip_norms);
  for (size_t sample = 0; sample < 2; ++sample) {
    double moved = 0;
    for (size_t layer = 0; layer < 3; ++layer) {
      const size_t at = layer * 2 + sample;
      EXPECT_EQ(made.values[at],
                clip(device, ClipFunction::abadi, {squares[at]}, clip_norms[layer]).values[0]);
      moved += made.values[at] * made.values[at] * squares[at];
    }
    EXPECT_LE(std::sqrt(moved), privacy::layer_sensitivity(clip_norms) * (1 + 4e-16));
  }
  EXPECT_DOUBLE_EQ(privacy::layer_sensitivity(privacy::equal_layer_norms(3, 17)), 3);
}

void a_sample_that_is_bad_in_one_layer_is_left_out_of_all(Device device) {
  // [2 layers, 3 samples]
  const Clipped made = clip_layers(device, {1, 1, 1, kNan, 1, kInfinity}, {1, 1});
  EXPECT_EQ(made.tally.bad_samples, 2);
  EXPECT_EQ(made.values[0], 0);
  EXPECT_GT(made.values[1], 0);
  EXPECT_EQ(made.values[2], 0);
  EXPECT_EQ(made.values[3], 0);
  EXPECT_GT(made.values[4], 0);
  EXPECT_EQ(made.values[5], 0);
}

void one_sample_moves_the_count_by_a_half(Device device) {
  const double all = clip_count(device, {1, 9, 0.25, 16, -1e-9}, 2);
  EXPECT_DOUBLE_EQ(all, 0.5);
  for (const double added : {0.01, 100.0})
    EXPECT_DOUBLE_EQ(std::abs(clip_count(device, {1, 9, 0.25, 16, -1e-9, added}, 2) - all), 0.5);
  EXPECT_EQ(clip_count(device, {1, 9, 0.25, 16, -1e-9, kNan, kInfinity}, 2), all);
  EXPECT_EQ(clip_count(device, {}, 2), 0);
}

// Without noise C settles where the wanted part of the norms lies below it.
void follows_the_quantile(Device device) {
  std::vector<double> squares;
  // norms 0.01 to 10, evenly
  for (int i = 1; i <= 1000; ++i) squares.push_back(i * 0.01 * i * 0.01);
  for (const double quantile : {0.2, 0.5, 0.9}) {
    const AdaptiveClip adaptive{.quantile = quantile, .rate = 0.2, .count_deviation = 50};
    for (const double start : {0.01, 100.0}) {
      double clip_norm = start;
      for (int step = 0; step < 300; ++step)
        clip_norm = privacy::next_clip_norm(adaptive, clip_norm,
                                            clip_count(device, squares, clip_norm), 1000);
      EXPECT_NEAR(clip_norm, 10 * quantile, 0.05) << "from " << start;
    }
  }
}

TEST(ClipGolden, EveryModelsGoldenCoefficientsAreMet) {
  every_models_golden_coefficients_are_met(cpu_device());
}
TEST(Clip, NoSampleMovesTheSumByMoreThanC) {
  no_sample_moves_the_sum_by_more_than_c(cpu_device());
}
TEST(Clip, SmallGradientsStayOrGrow) {
  small_gradients_stay_or_grow(cpu_device());
}
TEST(Clip, WhatIsNotFiniteContributesExactlyNothingAndIsCounted) {
  what_is_not_finite_contributes_exactly_nothing_and_is_counted(cpu_device());
}
TEST(Clip, ASquareBelowZeroIsZero) {
  a_square_below_zero_is_zero(cpu_device());
}
TEST(Clip, LayersAreClippedApartAndTogetherStayWithinTheirSensitivity) {
  layers_are_clipped_apart_and_together_stay_within_their_sensitivity(cpu_device());
}
TEST(Clip, ASampleThatIsBadInOneLayerIsLeftOutOfAll) {
  a_sample_that_is_bad_in_one_layer_is_left_out_of_all(cpu_device());
}
TEST(AdaptiveClip, OneSampleMovesTheCountByAHalf) {
  one_sample_moves_the_count_by_a_half(cpu_device());
}
TEST(AdaptiveClip, FollowsTheQuantile) {
  follows_the_quantile(cpu_device());
}

TEST(GpuClip, TheKernelDoesWhatTheCpusDoes) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device gpu = gpu_device(0);
  every_models_golden_coefficients_are_met(gpu);
  no_sample_moves_the_sum_by_more_than_c(gpu);
  small_gradients_stay_or_grow(gpu);
  what_is_not_finite_contributes_exactly_nothing_and_is_counted(gpu);
  a_square_below_zero_is_zero(gpu);
  layers_are_clipped_apart_and_together_stay_within_their_sensitivity(gpu);
  a_sample_that_is_bad_in_one_layer_is_left_out_of_all(gpu);
  one_sample_moves_the_count_by_a_half(gpu);
  follows_the_quantile(gpu);
}

}  // namespace
}  // namespace veil
