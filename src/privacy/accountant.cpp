#include "privacy/accountant.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "privacy/batch_maximum.h"
#include "privacy/numerics.h"
#include "privacy/pld.h"
#include "privacy/rdp.h"

namespace veil::privacy {
namespace {

class PldAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::pld; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override {
    return spent_with_overflow(phases, delta,
                               [&](double left) { return pld_epsilon(phases, left); });
  }
  bool is_bound() const override { return true; }
  const char* note() const override { return "upper bound, numerical"; }
};

class RdpAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::rdp; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override {
    return spent_with_overflow(phases, delta,
                               [&](double left) { return rdp_epsilon(phases, left); });
  }
  bool is_bound() const override { return true; }
  const char* note() const override { return "upper bound"; }
};

class GdpAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::gdp; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override {
    return spent_with_overflow(phases, delta,
                               [&](double left) { return gdp_epsilon(phases, left); });
  }
  bool is_bound() const override { return false; }
  const char* note() const override {
    return "approximation, can lie below the truth: no guarantee";
  }
};

}  // namespace

const NameTable<AccountantKind>& names(AccountantKind) {
  static const NameTable<AccountantKind> table = {{AccountantKind::pld, "pld", {"prv"}},
                                                  {AccountantKind::rdp, "rdp"},
                                                  {AccountantKind::gdp, "gdp"}};
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

double gdp_mu(const std::vector<Phase>& phases) {
  double squared = 0;
  for (const Phase& phase : joined(phases)) {
    if (phase.sigma == 0) return std::numeric_limits<double>::infinity();
    squared += phase.q * phase.q * static_cast<double>(phase.steps) *
               std::expm1(1 / (phase.sigma * phase.sigma));
  }
  return std::sqrt(squared);
}

Spent gdp_epsilon(const std::vector<Phase>& phases, double delta) {
  check_phases(phases);
  check_delta(delta);
  return {.epsilon = gaussian_epsilon(gdp_mu(phases), delta), .error = {}, .order = {}};
}

Spent spent_together(const Accountant& accountant, const std::vector<std::vector<Phase>>& groups,
                     double delta) {
  if (groups.empty()) return accountant.epsilon({}, delta);
  if (groups.size() == 1) return accountant.epsilon(groups[0], delta);
  Spent sum{.epsilon = 0, .error = 0, .order = {}};
  for (const std::vector<Phase>& group : groups) {
    const Spent spent = accountant.epsilon(group, delta / static_cast<double>(groups.size()));
    sum.epsilon += spent.epsilon;
    sum.error = sum.error && spent.error ? std::optional(*sum.error + *spent.error) : std::nullopt;
  }
  return sum;
}

namespace {

constexpr double kSmallestSigma = 0.01, kLargestSigma = 1e5;

}  // namespace

Calibration calibrate_sigma(const Accountant& accountant, double epsilon, double delta, double q,
                            int64_t steps, double tolerance, double overflow) {
  check_delta(delta);
  check_phases({{.sigma = 1, .q = q, .steps = steps}});
  const bool nothing = q == 0 || steps == 0;
  if (nothing && epsilon > 0) return {};
  return calibrate_sigma(
      [&](double sigma) {
        return accountant.epsilon({{.sigma = sigma, .q = q, .steps = steps, .overflow = overflow}},
                                  delta);
      },
      epsilon,
      fmt::format("with q {}, {} steps and delta {} the {} accountant", q, steps, delta,
                  name_of(accountant.kind())),
      tolerance);
}

Calibration calibrate_sigma(const std::function<Spent(double)>& spent_at, double epsilon,
                            const std::string& setting, double tolerance) {
  if (!(epsilon > 0) || std::isinf(epsilon))
    field_error("epsilon", "must be positive, got {}", epsilon);
  const auto at = [&](double sigma) { return Calibration{sigma, spent_at(sigma)}; };

  // A bracket: too little noise at `low`, enough at `high`.
  Calibration low, high = at(1);
  if (high.spent.epsilon <= epsilon) {
    for (low = at(0.5); low.spent.epsilon <= epsilon;
         low = at(std::max(kSmallestSigma, low.sigma / 2))) {
      high = low;
      if (low.sigma == kSmallestSigma) return low;
    }
  } else {
    for (low = high, high = at(2); high.spent.epsilon > epsilon;
         high = at(std::min(kLargestSigma, 2 * high.sigma))) {
      low = high;
      if (high.sigma == kLargestSigma) {
        field_error("epsilon", "{}: {} reaches no less than {:.4g}", epsilon, setting,
                    high.spent.epsilon);
      }
    }
  }

  // ln epsilon is nearly straight in ln sigma: regula falsi, aimed a little above the root so that
  // the bracket closes from both sides, and halved when a side does not move.
  for (int i = 0; high.sigma - low.sigma > tolerance; ++i) {
    double share = 0.5;
    if (i % 3 != 2 && low.spent.epsilon < HUGE_VAL && high.spent.epsilon > 0) {
      const double fall = std::log(low.spent.epsilon / high.spent.epsilon);
      share = std::clamp(std::log(low.spent.epsilon / epsilon) / fall, 0.02, 0.98);
    }
    const double guess = low.sigma * std::pow(high.sigma / low.sigma, share);
    const double aim = i % 3 == 0 ? std::min(guess + 0.4 * tolerance, 0.5 * (guess + high.sigma))
                                  : std::max(guess - 0.4 * tolerance, 0.5 * (guess + low.sigma));
    const Calibration tried = at(i % 3 == 2 ? guess : aim);
    (tried.spent.epsilon > epsilon ? low : high) = tried;
  }
  // A numerical epsilon need not fall with every last digit of sigma, so what is returned is
  // checked itself.
  Calibration result = at(std::ceil(high.sigma * 1e5) / 1e5);
  while (result.spent.epsilon > epsilon)
    result = at(std::ceil((result.sigma + tolerance / 4) * 1e5) / 1e5);
  return result;
}

}  // namespace veil::privacy
