// What a private run has spent, and how much noise a budget asks for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/names.h"
#include "privacy/phase.h"

namespace veil::privacy {

enum class AccountantKind { pld, rdp, gdp };
const NameTable<AccountantKind>& names(AccountantKind);

class Accountant {
 public:
  virtual ~Accountant() = default;
  virtual AccountantKind kind() const = 0;
  virtual Spent epsilon(const std::vector<Phase>& phases, double delta) const = 0;
  // Whether `epsilon` is an upper bound of the truth, so that it may decide a budget.
  virtual bool is_bound() const = 0;
  virtual const char* note() const = 0;  // one phrase for tables
};
std::unique_ptr<Accountant> make_accountant(AccountantKind kind);

// The central-limit approximation of Bu, Dong, Long and Su, "Deep Learning with Gaussian
// Differential Privacy" (2020). It can lie below the truth; it is shown and never decides.
// gdp_mu: mu of the Gaussian that the run comes near: mu^2 = sum over phases of q^2 steps
// (exp(1/sigma^2) - 1).
double gdp_mu(const std::vector<Phase>& phases);
Spent gdp_epsilon(const std::vector<Phase>& phases, double delta);

// What groups of phases spend together at `delta` if phases compose within a group only: each
// group's epsilon at its share of delta, added up. One group is composed as it is.
Spent spent_together(const Accountant& accountant, const std::vector<std::vector<Phase>>& groups,
                     double delta);

struct Calibration {
  double sigma = 0;
  Spent spent;  // at that sigma; its epsilon does not exceed the target
};

// The smallest sigma, to `tolerance` from above, with which `steps` steps at rate q stay within
// `epsilon` at `delta`. It has five decimals, so that the sigma people copy is the one that was
// checked. Runs that touch no record need none: sigma 0. UserError if no sigma up to 1e5 is
// enough; a sigma below 0.01 is not looked for. `overflow` is Phase's.
Calibration calibrate_sigma(const Accountant& accountant, double epsilon, double delta, double q,
                            int64_t steps, double tolerance = 1e-4, double overflow = 0);
// The same for whatever `spent_at` says of a sigma; `setting` names it in an error.
Calibration calibrate_sigma(const std::function<Spent(double sigma)>& spent_at, double epsilon,
                            const std::string& setting, double tolerance = 1e-4);

}  // namespace veil::privacy
