#include "privacy/explore.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "privacy/mechanism.h"
#include "privacy/pld.h"

namespace veil::privacy {
namespace {

// pld on a coarse grid: still an upper bound.
class CoarseAccountant : public Accountant {
 public:
  AccountantKind kind() const override { return AccountantKind::pld; }
  Spent epsilon(const std::vector<Phase>& phases, double delta) const override {
    const Bounds bounds = pld_epsilon_bounds(phases, delta, /*accuracy=*/1e-2);
    return {.epsilon = bounds.upper, .error = bounds.upper - bounds.lower, .order = {}};
  }
  bool is_bound() const override { return true; }
  const char* note() const override { return "upper bound, coarse"; }
};

double coarse_sigma(const ExploreRequest& request, double q, int64_t steps) {
  return calibrate_sigma(CoarseAccountant(), request.epsilon, request.delta, q, steps,
                         /*tolerance=*/4e-3)
      .sigma;
}

}  // namespace

const NameTable<BatchAdvice>& names(BatchAdvice) {
  static const NameTable<BatchAdvice> table = {{BatchAdvice::larger_pays, "larger pays"},
                                               {BatchAdvice::sensible, "sensible"},
                                               {BatchAdvice::saturated, "saturated"}};
  return table;
}

std::vector<double> usual_batches(int64_t data_size) {
  std::vector<double> batches;
  for (double batch = 64; batch <= 0.5 * static_cast<double>(data_size); batch *= 4)
    batches.push_back(batch);
  if (batches.empty()) batches.push_back(std::max(1.0, 0.5 * static_cast<double>(data_size)));
  constexpr size_t kMost = 6;
  if (batches.size() > kMost)
    batches.erase(batches.begin(), batches.end() - static_cast<std::ptrdiff_t>(kMost));
  return batches;
}

std::vector<ExploredRun> explore(const ExploreRequest& request) {
  if (request.data_size < 1)
    field_error("data_size", "must be at least 1, got {}", request.data_size);
  check_delta(request.delta);
  const auto size = static_cast<double>(request.data_size);
  const std::vector<double> batches = request.batches.empty() ? usual_batches(request.data_size)
                                                              : request.batches,
                            epochs = request.epochs.empty() ? kUsualExploredEpochs : request.epochs;
  std::vector<ExploredRun> runs;
  for (const double batch : batches) {
    if (!(batch > 0 && batch <= size))
      field_error("batch", "{}: allowed is more than 0, up to the {} records", batch,
                  request.data_size);
    for (const double wanted : epochs) {
      if (!(wanted > 0 && std::isfinite(wanted)))
        field_error("epochs", "must be positive, got {}", wanted);
      ExploredRun run{.batch = batch, .epochs = wanted};
      run.steps = steps_of_epochs(wanted, batch / size);
      run.sigma = coarse_sigma(request, batch / size, run.steps);
      run.noise_batch_ratio = run.sigma / batch;
      const double twice = std::min(2 * batch, size);
      run.gain = twice > batch ? run.noise_batch_ratio /
                                     (coarse_sigma(request, twice / size, run.steps) / twice)
                               : 1;
      run.advice = run.gain > kNearlyAll   ? BatchAdvice::larger_pays
                   : run.gain < kHardlyAny ? BatchAdvice::saturated
                                           : BatchAdvice::sensible;
      runs.push_back(run);
    }
  }
  return runs;
}

}  // namespace veil::privacy
