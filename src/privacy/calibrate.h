// How much noise a budget asks for.
#pragma once

#include "privacy/accountant.h"

namespace veil::privacy {

struct Calibration {
  double sigma = 0;
  Spent spent;  // at that sigma; its epsilon does not exceed the target
};

// The smallest sigma, to `tolerance` from above, with which `steps` steps at rate q stay within `epsilon` at `delta`.
// It has five decimals, so that the sigma people copy is the one that was checked. Runs that touch no record need none:
// sigma 0. UserError where no sigma up to 1e5 is enough; a sigma below 0.01 is not looked for.
Calibration calibrate_sigma(const Accountant& accountant, double epsilon, double delta, double q, int64_t steps,
                            double tolerance = 1e-4);

}  // namespace veil::privacy
