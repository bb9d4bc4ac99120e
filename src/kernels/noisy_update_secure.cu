#include "kernels/noisy_update.cuh"

namespace veil::launch {

void noisy_update_secure(const NoisyUpdate& update) {
  for_element<noisy::By<NoiseGenerator::secure>::Run>(update.grad_element, update);
}

}  // namespace veil::launch
