// A mechanism for the tests of ledger and journal: ten steps per epoch.
#pragma once

#include "privacy/mechanism.h"

namespace veil::privacy {

inline MechanismRequest request(SamplerKind sampler = SamplerKind::poisson) {
  MechanismRequest wanted;
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
