#include "privacy/clip.h"

#include <cmath>

#include "kernels/clip_coefficient.h"

namespace veil::privacy {

const NameTable<ClipFunction>& names(ClipFunction) {
  static const NameTable<ClipFunction> table = {{ClipFunction::abadi, "abadi", {"flat"}},
                                                {ClipFunction::automatic, "automatic", {"auto-s"}},
                                                {ClipFunction::per_layer, "per-layer"},
                                                {ClipFunction::adaptive, "adaptive"}};
  return table;
}

Coefficients clip_coefficients(ClipFunction function, const std::vector<double>& squared_norms, double clip_norm) {
  VEIL_CHECK(clip_norm > 0, "a clip norm of {}", clip_norm);
  VEIL_CHECK(function != ClipFunction::per_layer, "layers have clip norms of their own");
  Coefficients result;
  for (const double squared : squared_norms) {
    result.values.push_back(function == ClipFunction::automatic ? automatic_coefficient(squared, clip_norm)
                                                                : abadi_coefficient(squared, clip_norm));
    result.bad_samples += !usable_squared_norm(squared);
  }
  return result;
}

Coefficients layer_coefficients(const std::vector<double>& squared_norms, const std::vector<double>& clip_norms) {
  const size_t layers = clip_norms.size(), samples = layers == 0 ? 0 : squared_norms.size() / layers;
  VEIL_CHECK(layers > 0 && samples * layers == squared_norms.size(), "{} squared norms of {} layers",
             squared_norms.size(), layers);
  Coefficients result;
  result.values.resize(squared_norms.size());
  for (size_t sample = 0; sample < samples; ++sample) {
    bool good = true;
    for (size_t layer = 0; layer < layers; ++layer) {
      good = good && usable_squared_norm(squared_norms[layer * samples + sample]);
    }
    result.bad_samples += !good;
    for (size_t layer = 0; good && layer < layers; ++layer) {
      const size_t at = layer * samples + sample;
      result.values[at] = abadi_coefficient(squared_norms[at], clip_norms[layer]);
    }
  }
  return result;
}

double layer_sensitivity(const std::vector<double>& clip_norms) {
  double squares = 0;
  for (const double norm : clip_norms) squares += norm * norm;
  return std::sqrt(squares);
}

std::vector<double> equal_layer_norms(double clip_norm, int64_t layers) {
  VEIL_CHECK(layers >= 1, "{} layers", layers);
  return std::vector<double>(static_cast<size_t>(layers), clip_norm / std::sqrt(static_cast<double>(layers)));
}

double clip_count(const std::vector<double>& squared_norms, double clip_norm) {
  double count = 0;
  for (const double squared : squared_norms) {
    if (usable_squared_norm(squared)) count += clamped_norm(squared) <= clip_norm ? 0.5 : -0.5;
  }
  return count;
}

double noisy_clip_count(double count, const AdaptiveClip& adaptive, NoiseGenerator generator, const ChaChaKey& key,
                        int64_t step) {
  VEIL_CHECK(adaptive.count_deviation > 0 && step >= 0 && step < kNoiseSteps, "a count's noise of {} at step {}",
             adaptive.count_deviation, step);
  return count +
         adaptive.count_deviation * noise_group<double>(generator, key, static_cast<uint64_t>(step), 0, 0).value[0];
}

double next_clip_norm(const AdaptiveClip& adaptive, double clip_norm, double noisy_count, double expected_batch) {
  const double fraction = 0.5 + noisy_count / expected_batch;
  return clip_norm * std::exp(-adaptive.rate * (fraction - adaptive.quantile));
}

double adaptive_gradient_sigma(double sigma, double count_deviation) {
  if (!(2 * count_deviation > sigma)) {
    user_error(
        "a count's noise of {} with sigma {}: allowed is more than sigma / 2, for the count alone would cost more",
        count_deviation, sigma);
  }
  const double ratio = sigma / (2 * count_deviation);
  return sigma / std::sqrt((1 - ratio) * (1 + ratio));
}

}  // namespace veil::privacy
