// The golden language models through the executor's private step, on any ranks.
#pragma once

#include <vector>

#include "models/test_language_golden.h"
#include "train/executor.h"

namespace veil {

struct GoldenSetting {
  privacy::PassPlan pass = privacy::PassPlan::two_pass;
  privacy::NormRule rule = privacy::NormRule::ghost;
  int64_t tile = 256;
  Strategy strategy = Strategy::ddp;
  DType dtype = at::kDouble;
  bool single = false;  // micro-batches of one sample
  std::string name() const;
};

// Samples are dealt out to the ranks as training does it, the last micro-batches padded. Holds per-parameter norms, coefficients and clipped sums against the
// golden's: `allowed` is relative. per_layer clips nothing (C is infinite), for the goldens have no layers; its sums are the plain ones. Every rank must call it.
void expect_private_golden(const LanguageGolden& golden, const GoldenSetting& setting, double allowed, int world,
                           Ranks ranks);

}  // namespace veil
