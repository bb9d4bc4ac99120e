// A plan for the tests of ledger and journal: ten steps an epoch.
#pragma once

#include "privacy/plan.h"

namespace veil::privacy {

inline PlanRequest request(SamplerKind sampler = SamplerKind::poisson) {
  PlanRequest wanted;
  wanted.sampler = sampler;
  wanted.data_size = 1000;
  wanted.expected_batch = 100;
  wanted.clip_norm = 1;
  wanted.sigma = 2;
  wanted.delta = 1e-5;
  wanted.accountant = AccountantKind::rdp;
  return wanted;
}

}  // namespace veil::privacy
