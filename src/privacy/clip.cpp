#include "privacy/clip.h"

#include <cmath>

#include "base/error.h"

namespace veil {

const NameTable<ClipFunction>& names(ClipFunction) {
  static const NameTable<ClipFunction> table = {{ClipFunction::abadi, "abadi", {"flat"}},
                                                {ClipFunction::automatic, "automatic", {"auto-s"}},
                                                {ClipFunction::psac, "psac"},
                                                {ClipFunction::per_layer, "per-layer"},
                                                {ClipFunction::adaptive, "adaptive"}};
  return table;
}

}  // namespace veil

namespace veil::privacy {

double layer_sensitivity(const std::vector<double>& clip_norms) {
  double squares = 0;
  for (const double norm : clip_norms) squares += norm * norm;
  return std::sqrt(squares);
}

std::vector<double> equal_layer_norms(double clip_norm, int64_t layers) {
  VEIL_CHECK(layers >= 1, "{} layers", layers);
  return std::vector<double>(static_cast<size_t>(layers),
                             clip_norm / std::sqrt(static_cast<double>(layers)));
}

double noisy_clip_count(double count, const AdaptiveClip& adaptive, NoiseGenerator generator,
                        const ChaChaKey& key, int64_t step) {
  VEIL_CHECK(adaptive.count_deviation > 0 && step >= 0 && step < kNoiseSteps,
             "a count's noise of {} at step {}", adaptive.count_deviation, step);
  const double noise =
      noise_group<double>(noise_keys(generator, key), static_cast<uint64_t>(step), 0, 0).value[0];
  const double noisy = count + adaptive.count_deviation * noise;
  if (generator != NoiseGenerator::hardened) return noisy;
  return noise_snapped(noisy, noise_anchor<double>(adaptive.count_deviation));
}

double next_clip_norm(const AdaptiveClip& adaptive, double clip_norm, double noisy_count,
                      double expected_batch) {
  const double fraction = 0.5 + noisy_count / expected_batch;
  return clip_norm * std::exp(-adaptive.rate * (fraction - adaptive.quantile));
}

double adaptive_gradient_sigma(double sigma, double count_deviation) {
  if (!(2 * count_deviation > sigma)) {
    field_error(
        "count_noise",
        "is {} with sigma {}: allowed is more than sigma / 2, for the count alone would cost more",
        count_deviation, sigma);
  }
  const double ratio = sigma / (2 * count_deviation);
  return sigma / std::sqrt((1 - ratio) * (1 + ratio));
}

}  // namespace veil::privacy
