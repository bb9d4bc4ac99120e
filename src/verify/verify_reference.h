// What DP-SGD is: one sample at a time in fp64, norms, coefficients and the clipped sum by hand. No
// clipping sink, plan or rank has a part in it.
#pragma once

#include "privacy/clip_method.h"
#include "verify/verify_options.h"
#include "verify/verify_samples.h"

namespace veil {

struct VerifyReference {
  std::vector<Tensor> params;      // as every run starts with them, in the storage type; on CPU
  Tensor squared;                  // fp64 [params, samples]
  std::vector<double> clip_norms;  // C, or one for each layer
  Tensor coefficients;             // fp64 [layers, samples]; 0 for the sample that does not count
  std::vector<Tensor> clipped;     // fp64, of the samples that count
  std::vector<Tensor> plain;       // fp64, of all samples, nothing clipped
  std::vector<Tensor> uncounted;   // fp64: what the sample that does not count would add
};

// Fills `out` from stored parameters: for ExecutorOptions::initial.
std::function<bool(ParamId, int64_t first, const Tensor& out)> initial_from(
    const std::vector<Tensor>& params);

// The last sample does not count if there are several. UserError if the model does not fit
// this machine in fp64.
VerifyReference verify_reference(const VerifyOptions& options, const Model& model,
                                 const ModelSource& source, const VerifySamples& samples,
                                 Device device, int ranks_here);

}  // namespace veil
