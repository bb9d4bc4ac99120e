#include "kernels/noisy_update.cuh"

namespace veil::launch {

void noisy_update_philox(const NoisyUpdate& update) {
  for_element<noisy::By<NoiseGenerator::philox>::Run>(update.grad_element, update);
}

}  // namespace veil::launch
