#include "suite/dit.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace veil {
namespace {

std::string seed_name(Mode mode) {
  if (mode == Mode::no_dp) return "vanilla";
  if (mode == Mode::flash) return "flash_clip";
  return name_of(mode);
}

std::string file_part(std::string text) {
  text = canonical(text);
  std::replace(text.begin(), text.end(), '/', '-');
  return text;
}

// Every experiment so far, once for each value; a single value adds nothing to the name.
template <typename T, typename Show>
void widen(std::vector<PlannedExperiment>& plan, const std::vector<T>& values, const std::string& option,
           const std::string& prefix, const Show& show) {
  if (values.empty()) return;
  std::vector<PlannedExperiment> wider;
  for (const PlannedExperiment& before : plan) {
    for (const T& value : values) {
      PlannedExperiment experiment = before;
      experiment.arguments.insert(experiment.arguments.end(), {option, show(value)});
      if (values.size() > 1) {
        experiment.name += "_" + prefix + file_part(show(value));
        experiment.title += fmt::format(" {}{}", prefix, show(value));
      }
      wider.push_back(std::move(experiment));
    }
  }
  plan = std::move(wider);
}

}  // namespace

std::vector<PlannedExperiment> dit_suite(const DitGrid& grid, const std::vector<std::string>& common) {
  std::vector<PlannedExperiment> plan;
  for (const Mode mode : grid.modes) plan.push_back({seed_name(mode), seed_name(mode), {"--mode", name_of(mode)}});
  const auto number = [](int64_t value) { return std::to_string(value); };
  widen(plan, grid.models, "--model", "", [](const std::string& name) { return name; });
  widen(plan, grid.image_sizes, "--image-size", "img", number);
  widen(plan, grid.patch_sizes, "--patch-size", "p", number);
  widen(plan, grid.batch_sizes, "--batch-size", "bs", number);
  widen(plan, grid.accumulations, "--accumulation", "ga", number);
  widen(plan, grid.attentions, "--attention", "", [](AttentionKind kind) { return name_of(kind); });
  std::set<std::string> names;
  for (PlannedExperiment& experiment : plan) {
    if (!names.insert(experiment.name).second) user_error("{}: a mode or value is given twice", experiment.name);
    experiment.arguments.insert(experiment.arguments.end(), common.begin(), common.end());
  }
  return plan;
}

}  // namespace veil
