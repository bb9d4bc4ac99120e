#include "kernels/noisy_update.cuh"

namespace veil::launch {

void noisy_update_secure(const NoisyUpdates& updates) {
  for_element<noisy::By<NoiseGenerator::secure>::Run>(updates.front().grad_element, updates);
}

}  // namespace veil::launch
