#include "privacy/accountant.h"

#include <cmath>

#include "privacy/gdp.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

namespace veil::privacy {
namespace {

class PldAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::pld; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override { return pld_epsilon(phases, delta); }
  bool is_bound() const override { return true; }
  const char* note() const override { return "upper bound, numerical"; }
};

class RdpAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::rdp; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override { return rdp_epsilon(phases, delta); }
  bool is_bound() const override { return true; }
  const char* note() const override { return "upper bound"; }
};

class GdpAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::gdp; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override { return gdp_epsilon(phases, delta); }
  bool is_bound() const override { return false; }
  const char* note() const override { return "approximation, can lie below the truth: no guarantee"; }
};

}  // namespace

const NameTable<AccountantKind>& names(AccountantKind) {
  static const NameTable<AccountantKind> table = {
      {AccountantKind::pld, "pld", {"prv"}}, {AccountantKind::rdp, "rdp"}, {AccountantKind::gdp, "gdp"}};
  return table;
}

std::unique_ptr<Accountant> make_accountant(AccountantKind kind) {
  switch (kind) {
    case AccountantKind::pld:
      return std::make_unique<PldAccountant>();
    case AccountantKind::rdp:
      return std::make_unique<RdpAccountant>();
    case AccountantKind::gdp:
      return std::make_unique<GdpAccountant>();
  }
  check_failed(__FILE__, __LINE__, "not reached", fmt::format("an accountant without a case"));
}

void check_phases(const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    if (!(phase.sigma >= 0) || std::isinf(phase.sigma)) user_error("sigma {}: allowed is 0 or more", phase.sigma);
    if (!(phase.q >= 0 && phase.q <= 1)) user_error("q {}: allowed is a sampling rate from 0 to 1", phase.q);
    if (phase.steps < 0) user_error("steps {}: allowed is 0 or more", phase.steps);
  }
}

void check_delta(double delta) {
  if (!(delta > 0 && delta < 1)) user_error("delta {}: allowed is between 0 and 1, both excluded", delta);
}

std::vector<Phase> joined(const std::vector<Phase>& phases) {
  std::vector<Phase> result;
  for (const Phase& phase : phases) {
    if (phase.steps == 0 || phase.q == 0) continue;
    bool found = false;
    for (Phase& earlier : result) {
      if (earlier.sigma != phase.sigma || earlier.q != phase.q) continue;
      earlier.steps += phase.steps;
      found = true;
      break;
    }
    if (!found) result.push_back(phase);
  }
  return result;
}

bool lacks_noise(const std::vector<Phase>& phases) {
  for (const Phase& phase : phases) {
    if (phase.sigma == 0) return true;
  }
  return false;
}

}  // namespace veil::privacy
