#include "suite/modes.h"

#include <set>

#include "base/error.h"

namespace veil {

std::vector<PlannedExperiment> mode_suite(const ModeGrid& grid, const std::vector<std::string>& common) {
  std::vector<PlannedExperiment> plan;
  std::set<std::string> names;
  for (const Mode mode : grid.modes) {
    for (const int64_t length : grid.seq_lengths) {
      const std::string name = fmt::format("{}_seq{}", name_of(mode), length);
      if (!names.insert(name).second) user_error("{}: a mode or sequence length is given twice", name);
      PlannedExperiment experiment{name,
                                   fmt::format("{}, T={}", name_of(mode), length),
                                   {"--mode", name_of(mode), "--seq-length", std::to_string(length)},
                                   fmt::format("seq{}", length)};
      experiment.arguments.insert(experiment.arguments.end(), common.begin(), common.end());
      plan.push_back(std::move(experiment));
    }
  }
  return plan;
}

}  // namespace veil
