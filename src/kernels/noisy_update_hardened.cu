#include "kernels/noisy_update.cuh"

namespace veil::launch {

void noisy_update_hardened(const NoisyUpdate& update) {
  for_element<noisy::By<NoiseGenerator::hardened>::Run>(update.grad_element, update);
}

}  // namespace veil::launch
