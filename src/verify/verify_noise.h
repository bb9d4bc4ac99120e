// The noise of a private step as it really arrives in the parameters: its law on each shard, its
// independence, its bits.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "record/verify_record.h"
#include "verify/verify_options.h"
#include "verify/verify_reference.h"

namespace veil {

// How unlikely these values are as standard normals. |z| above 5 comes once in 1.7 million draws,
// kolmogorov above 2.5 once in 130 thousand.
struct NoiseLaw {
  int64_t count = 0;
  double mean_z = 0, variance_z = 0;
  // sqrt(n) times the largest distance to the normal's distribution function
  double kolmogorov = 0;
};
NoiseLaw noise_law(std::vector<double> values);
// sqrt(n) times the correlation of two rows of values; the shorter one's length counts.
double correlation_z(const std::vector<double>& a, const std::vector<double>& b);
inline constexpr double kLargestZ = 5, kLargestKolmogorov = 2.5;

// Three steps without samples from parameters of 0: what is in them afterwards is noise alone.
// It must have the bits that kernels/noise.h has for (step, parameter, element of the whole
// parameter). Then one step with samples in several micro-batches, against the same step without
// noise.
// sigma, C and E are not 1, so that one of them that is lost is seen.
// Which model it was is left to the caller.
VerifyNoiseRow verify_noise(const VerifyOptions& options, const Model& model,
                            const VerifyReference& reference, const Batch& own, Strategy strategy,
                            NoiseGenerator generator, const VerifyPlace& place, Device device);

// The same of a batch of a fixed size whose per-sample gradients are kept, so that on one rank
// clipping, noise and update are one kernel; with AdamW and bf16 parameters (fp64 if that is
// verified). The noise is what two steps from one starting point differ in, one of them without
// noise, at the optimizer's input (train/update_probe.h).
VerifyNoiseRow verify_fixed_noise(const VerifyOptions& options, const Model& model,
                                  const VerifyReference& reference, const Batch& own,
                                  Strategy strategy, NoiseGenerator generator,
                                  const VerifyPlace& place, Device device);

}  // namespace veil
