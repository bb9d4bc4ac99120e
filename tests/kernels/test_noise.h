// The noise that tests of it look at.
#pragma once

#include <ATen/ops/zeros.h>

#include <vector>

#include "kernels/noise.h"
#include "kernels/stream_key.h"

namespace veil {

inline const NoiseGenerator kGenerators[] = {NoiseGenerator::secure, NoiseGenerator::philox,
                                             NoiseGenerator::hardened};

inline NoiseSource source_of(NoiseGenerator generator, uint8_t secret = 1, uint8_t nonce = 2,
                             KeyDomain domain = KeyDomain::noise) {
  RunSecret secret_bytes{};
  RunNonce nonce_bytes{};
  secret_bytes[0] = secret;
  nonce_bytes[0] = nonce;
  return {generator, derive_key(secret_bytes, nonce_bytes, domain)};
}

inline Tensor normals(const NoiseSource& source, int64_t count, DType dtype = at::kDouble,
                      double step = 0, uint32_t parameter = 0, int64_t first = 0,
                      Device device = cpu_device()) {
  const Tensor out = at::zeros({count}, at::TensorOptions().dtype(dtype).device(device));
  add_noise(out, NoiseKnobs{step, 1}, source, parameter, first);
  return out;
}

inline std::vector<double> values_of(const Tensor& tensor) {
  const double* at = tensor.data_ptr<double>();
  return {at, at + tensor.numel()};
}

inline constexpr uint32_t kLastWord = 0xFFFFFFFFu;

template <typename Real>
Real radius_of(uint32_t word, uint32_t further) {
  return noise_radius(noise_uniform<Real>(word, further));
}
template <typename Real>
Real radius_of(uint32_t word) {
  return noise_radius(noise_uniform<Real>(word));
}

}  // namespace veil
