#include "suite/zero.h"

#include <set>

#include "base/error.h"

namespace veil {

std::vector<PlannedExperiment> zero_suite(const ZeroGrid& grid, const std::vector<std::string>& common) {
  std::vector<PlannedExperiment> plan;
  std::set<std::string> names;
  for (const Strategy strategy : grid.strategies) {
    for (const int64_t batch : grid.batch_sizes) {
      for (const int64_t accumulation : grid.accumulations) {
        const std::string name = fmt::format("{}_bs{}_ga{}", name_of(strategy), batch, accumulation);
        if (!names.insert(name).second) user_error("{}: a strategy, batch size or accumulation is given twice", name);
        PlannedExperiment experiment{name,
                                     fmt::format("{} bs{} ga{}", name_of(strategy), batch, accumulation),
                                     {"--strategy", name_of(strategy), "--batch-size", std::to_string(batch),
                                      "--accumulation", std::to_string(accumulation)},
                                     fmt::format("bs{}_ga{}", batch, accumulation)};
        experiment.arguments.insert(experiment.arguments.end(), common.begin(), common.end());
        plan.push_back(std::move(experiment));
      }
    }
  }
  return plan;
}

}  // namespace veil
