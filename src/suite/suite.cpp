#include "suite/suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "estimate/time_estimate.h"
#include "models/family.h"
#include "run/profile_run.h"
#include "run/ranks.h"

namespace veil {
namespace {

constexpr double kStartSeconds = 1.5;              // libraries, records, traces
constexpr int64_t kLargeParameters = 300'000'000;  // beyond this a CPU takes hours
constexpr double kLongSeconds = 600;               // of one experiment on a CPU
constexpr double kFillBytesPerSecond = 2e9;  // parameters are made by a counter-based generator

}  // namespace

// Each in the file of its name.
Suite linear_suite();
Suite zero_suite();
Suite llama3_suite();
Suite bottlenecks_suite();
Suite dit_suite();
Suite checkpointing_suite();
Suite foresight_suite();

std::vector<Suite> suites() {
  return {linear_suite(), zero_suite(),          llama3_suite(),   bottlenecks_suite(),
          dit_suite(),    checkpointing_suite(), foresight_suite()};
}

Suite find_suite(const std::string& name) {
  std::vector<std::string> known;
  for (Suite& suite : suites()) {
    if (suite.name == canonical(name)) return std::move(suite);
    known.push_back(suite.name);
  }
  const std::string meant = nearest(name, known);
  user_error("unknown suite '{}': {}allowed are {}", name,
             meant.empty() ? "" : "did you mean " + meant + "? ", join(known, ", "));
}

std::vector<SuitePage> suite_pages() {
  std::vector<SuitePage> pages;
  for (const Suite& suite : suites()) {
    pages.push_back(suite.page);
    pages.back().suite = suite.name;
    pages.back().remedy = [suite](const std::string& remedy) {
      return accepted_remedy(suite, remedy);
    };
  }
  return pages;
}

void check_machine(const RunConfig& config, const std::string& suite) {
  if (config.placement.device != DeviceKind::automatic || gpu_count() > 0) return;
  RunConfig short_one = config;
  if (model_source(config).is_language_model()) short_one.model.seq_length = 1;
  const int world = config.placement.simulate_world.value_or(config.placement.ranks.value_or(1));
  const int64_t parameters = make_model(short_one, model_source(short_one), world)
                                 .shape(1, dtype_of(config.step.compute), false)
                                 .param_count();
  if (parameters < kLargeParameters && estimated_seconds(config) < kLongSeconds) return;
  throw MissingBackend(fmt::format(
      "no GPU answers here, and {} is large for a CPU: `veil suite {} --preset tiny` runs the same "
      "experiments in a minute; on one GPU, --simulate-world N measures one rank of N; --device "
      "cpu "
      "runs it anyway",
      config.model.name, suite));
}

std::vector<std::string> prefer_real_ranks(RunConfig& config, const SuiteCall& call) {
  PlacementConfig& placement = config.placement;
  const bool by_preset = placement.simulate_world && call.given("preset");
  if (!by_preset || !call.given("ranks") || placement.ranks.value_or(1) < 2) return {};
  const std::string notice = fmt::format("ranks: {} are started, so no world of {} is simulated",
                                         *placement.ranks, *placement.simulate_world);
  placement.simulate_world.reset();
  return {notice};
}

std::string accepted_remedy(const Suite& suite, const std::string& remedy) {
  const auto has = [&](const std::string& name) {
    return std::any_of(suite.options.begin(), suite.options.end(),
                       [&](const SuiteOption& option) { return option.name == name; });
  };
  const auto refused = [&](const std::string& name) {
    return std::any_of(suite.refused.begin(), suite.refused.end(), [&](const RefusedSettings& r) {
      return std::find(r.names.begin(), r.names.end(), name) != r.names.end();
    });
  };
  const size_t end = remedy.find(" (");
  std::vector<std::string> words = split(remedy.substr(0, end), ' ');
  for (std::string& word : words) {
    if (!word.starts_with("--")) continue;
    const std::string name = word.substr(2), several = name + "s";
    // Where modes are compared, no_dp is one of them, and it has no plan of clipping.
    if (name == "pass-plan" && (!suite.private_step || has("mode") || has("modes"))) return "";
    if (!refused(name)) continue;
    if (name == "strategy" && has("strategies")) {
      word = "--strategies";
    } else if (has(several)) {
      word = "--" + several;
    } else {
      return "";
    }
  }
  return join(words, " ") + (end == std::string::npos ? "" : remedy.substr(end));
}

double estimated_seconds(RunConfig config) {
  const bool gpu = runs_on_gpu(config.placement);
  const int world = config.placement.simulate_world.value_or(config.placement.ranks.value_or(1));
  settle_batch(config, world);
  const Model model = make_model(config, model_source(config), world);
  StepOptions step = step_options(config, world, gpu);
  const ModelShape shape = model.shape(config.step.batch_size, step.compute, gpu);
  const StepPrices prices = step_prices(config, gpu);
  if (config.privacy.is_private())
    step.clip = clip_method(config.privacy.method, shape, step, config.privacy.by_layer(), prices);
  const double step_seconds = estimate_time(build_schedule(shape, step), shape, prices).ms / 1e3;
  const double fill =
      static_cast<double>(shape.param_count() * dtype_bytes(step.storage)) / kFillBytesPerSecond;
  return kStartSeconds + fill +
         static_cast<double>(config.measure.warmup + config.measure.iterations) * step_seconds;
}

bool SuiteOption::is_list() const {
  return !std::holds_alternative<bool*>(field) && !std::holds_alternative<std::string*>(field);
}

bool SuiteOption::is_empty_list() const {
  return std::visit(
      [](const auto* list) {
        if constexpr (requires { list->empty(); }) return list->empty();
        return false;
      },
      field);
}

std::vector<std::string> Suite::kept_back() const {
  std::vector<std::string> names;
  for (const SuiteOption& option : options) {
    names.push_back(option.name);
    if (!option.instead_of.empty() && !option.is_empty_list()) names.push_back(option.instead_of);
  }
  return names;
}

void check_shared(const RunConfig& config) {
  check_config(config);
  RankInfo ranks;
  ranks.local_world = ranks.world = config.placement.ranks.value_or(1);
  rank_batch(config, experiment_world(config, ranks));
  choose_device(config, ranks);
}

std::vector<Experiment> with_common(std::vector<Experiment> experiments,
                                    const std::vector<std::string>& common,
                                    const std::string& what) {
  std::set<std::string> names;
  for (Experiment& experiment : experiments) {
    if (!names.insert(experiment.name).second)
      user_error("{}: {} is given twice", experiment.name, what);
    experiment.arguments.insert(experiment.arguments.end(), common.begin(), common.end());
  }
  return experiments;
}

}  // namespace veil
