// The central-limit approximation of Bu, Dong, Long and Su, "Deep Learning with Gaussian Differential Privacy" (2020).
// It can lie below the truth; it is shown and never decides.
#pragma once

#include "privacy/accountant.h"

namespace veil::privacy {

// mu of the Gaussian that the run comes near: mu^2 = sum over phases of q^2 steps (exp(1/sigma^2) - 1).
double gdp_mu(const std::vector<Phase>& phases);
Spent gdp_epsilon(const std::vector<Phase>& phases, double delta);

}  // namespace veil::privacy
