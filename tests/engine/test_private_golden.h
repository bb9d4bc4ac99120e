// The golden models through the executor's private step, on any ranks.
#pragma once

#include <functional>
#include <vector>

#include "engine/executor.h"
#include "models/load.h"
#include "models/test_diffusion_golden.h"
#include "models/test_language_golden.h"
#include "models/test_lora_golden.h"

namespace veil {

// What a golden says of a private step, whatever its model is.
struct PrivateGolden {
  std::string name;
  std::function<Model()> model;
  std::function<InitialWeights(const Model&)> weights;
  Batch batch;  // real numbers in fp64
  double clip_norm = 0;
  // In fp32: ten times what plain PyTorch is off by (README.md of the goldens).
  double fp32_allowed = 1e-5;
  Tensor norms, clip_coefficients;                                          // fp64 [batch]
  std::map<std::string, Tensor> grad_sum, squared_norms, grad_clipped_sum;  // by parameter
};
std::vector<PrivateGolden> private_goldens();

struct GoldenSetting {
  privacy::PassKind pass = privacy::PassKind::two_pass;
  privacy::NormRule rule = privacy::NormRule::ghost;
  int64_t tile = 256;
  Strategy strategy = Strategy::ddp;
  DType dtype = at::kDouble;
  bool single = false;  // micro-batches of one sample
  Exchange exchange = Exchange::automatic;
  std::string name() const;
};

// Samples are dealt out to the ranks as training does it, the last micro-batches padded. Holds
// per-parameter norms, coefficients and clipped sums against the golden's: `allowed` is relative.
// per_layer clips nothing (C is infinite), for the goldens have no layers; its sums are the plain
// ones. Every rank must call it.
void expect_private_golden(const PrivateGolden& golden, const GoldenSetting& setting,
                           double allowed, int world, Ranks ranks);

}  // namespace veil
