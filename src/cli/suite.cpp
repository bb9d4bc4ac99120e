// veil suite: a question answered by several experiments, each in its own process.
#include <filesystem>

#include "base/files.h"
#include "cli/command.h"
#include "cli/experiment_options.h"
#include "cli/progress.h"
#include "report/report.h"
#include "suite/linear.h"
#include "suite/profile_run.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

struct SuiteCommand {
  ExperimentOptions experiment;
  std::string output_dir = "results", resume;
  bool json = false;
};

// What the user said, in the words of `veil profile`: the four set-ups decide strategy, offload and prefetch themselves.
std::vector<std::string> passed_on(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = canonical(arguments[i].substr(0, arguments[i].find('=')));
    if (name == "--json") continue;
    if (name == "--output-dir" || name == "--resume") {
      const bool has_value = arguments[i].find('=') == std::string::npos && i + 1 < arguments.size() &&
                             arguments[i + 1].rfind("--", 0) != 0;
      if (has_value) ++i;
      continue;
    }
    words.push_back(arguments[i]);
  }
  return words;
}

}  // namespace

int run_suite(const std::vector<std::string>& arguments) {
  const std::vector<std::string> known = {"linear"};
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print(
        "usage: veil suite NAME [options]\n\n  linear  DDP or FSDP on a stack of linear layers: four set-ups, one "
        "table\n\n`veil suite NAME --help` lists the options.\n");
    return kExitDone;
  }
  if (canonical(arguments[0]) != "linear") {
    const std::string meant = nearest(arguments[0], known);
    user_error("unknown suite '{}': {}allowed are {}", arguments[0],
               meant.empty() ? "" : "did you mean " + meant + "? ", join(known, ", "));
  }
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  SuiteCommand command;
  Options options("suite linear",
                  "DDP or FSDP on a stack of linear layers: basic DDP, basic FSDP, for memory, for speed");
  add_step_options(options, command.experiment);
  add_measuring_options(options, command.experiment);
  add_experiment_presets(options, /*measuring=*/true);
  options.add("output-dir", command.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add("resume", command.resume,
              {.help = "go on in this folder, or the newest of --output-dir: what has an ok record is not run again",
               .bare = "latest",
               .value = "DIR"});
  options.add("json", command.json, {.help = "print the records instead of the table"});
  if (!options.parse(rest)) return kExitDone;
  for (const char* fixed : {"strategy", "cpu-offload", "forward-prefetch", "backward-prefetch"}) {
    if (options.given(fixed))
      user_error("--{}: the suite's four set-ups decide it themselves; `veil profile` measures one of your own", fixed);
  }
  check_options(command.experiment);
  RankInfo planned;
  planned.local_world = planned.world = command.experiment.ranks.value_or(1);
  rank_batch(command.experiment, experiment_world(command.experiment, planned));
  choose_device(command.experiment, planned);

  SweepOptions sweep;
  sweep.suite = "linear";
  sweep.resume = !command.resume.empty();
  if (command.resume == "latest") command.resume = newest_run_folder(command.output_dir);
  if (sweep.resume && !std::filesystem::is_directory(command.resume))
    user_error("--resume {}: no such folder", command.resume);
  sweep.folder = sweep.resume ? command.resume : new_run_folder(command.output_dir);
  if (!command.json) fmt::print("{}\n", options.table());
  const std::vector<PlannedExperiment> plan = linear_suite(passed_on(rest));
  Progress progress;
  const SweepResult result =
      run_sweep(plan, sweep, [&](int index, const PlannedExperiment& experiment, const Json* record) {
        if (!record) {
          progress.show(fmt::format("[{}/{}] {}", index + 1, plan.size(), experiment.title), index,
                        static_cast<int64_t>(plan.size()));
          return;
        }
        progress.clear();
        if (command.json) return;
        fmt::print("[{}/{}] {}: {}{}\n", index + 1, plan.size(), experiment.title, record->value("outcome", "?"),
                   record->value("outcome", "") == "error" ? " (" + record->value("message", "") + ")" : "");
      });
  const ReportFiles report = write_report(sweep.folder, "");
  if (command.json) {
    fmt::print("{}\n", Json(result.records).dump(1));
  } else {
    fmt::print("\n{}\npage      {}\nrecords   {}\n", report.summary, join_path(report.output_folder, "index.html"),
               sweep.folder);
    if (!report.plots_hint.empty()) fmt::print("{}\n", report.plots_hint);
  }
  return result.failed ? kExitFailed : kExitDone;
}

}  // namespace veil
