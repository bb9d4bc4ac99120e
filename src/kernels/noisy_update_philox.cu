#include "kernels/noisy_update.cuh"

namespace veil::launch {

void noisy_update_philox(const NoisyUpdates& updates) {
  for_element<noisy::By<NoiseGenerator::philox>::Run>(updates.front().grad_element, updates);
}

}  // namespace veil::launch
