// veil suite: a question answered by several experiments, each in its own process.
#include "cli/suite.h"

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/preset_files.h"
#include "cli/progress.h"
#include "report/report.h"
#include "suite/duration.h"
#include "suite/linear.h"
#include "suite/profile_run.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Plan = std::vector<PlannedExperiment>;

constexpr int kExitInterrupted = 130;  // as shells count Ctrl-C

const std::vector<std::string> kOwnOptions = {"output-dir", "resume",  "dry-run",        "json",
                                              "repeat",     "timeout", "max-temperature"};

// What a person wants to see of a suite before it begins, whatever was given.
const std::vector<std::string> kDefining = {"model",       "mode",          "modes",      "strategies", "batch-size",
                                            "batch-sizes", "accumulations", "iterations", "device",     "ranks"};

void set_linear_defaults(SuiteCommand&) {}  // those of `veil profile`

void add_linear_options(Options& options, SuiteCommand&) {
  options.refuse({"strategy", "cpu-offload", "forward-prefetch", "backward-prefetch"},
                 "the suite's four set-ups decide it themselves; `veil profile` measures one of your own");
}

Plan plan_linear(const Options& options, SuiteCommand& command) {
  check_options(command.experiment);
  check_world(command);
  return linear_suite(options.passed_on({}, kOwnOptions));
}

void add_zero_options(Options& options, SuiteCommand& command) {
  options.add("strategies", command.zero.strategies, {.help = "which are compared"});
  options.add("batch-sizes", command.zero.batch_sizes,
              {.help = "samples a rank and micro-batch, one after another", .minimum = 1, .maximum = 1 << 24});
  options.add("accumulations", command.zero.accumulations,
              {.aliases = {"grad_accum_steps"},
               .help = "micro-batches in a logical batch, one after another",
               .minimum = 1,
               .maximum = 1000000});
  options.refuse({"strategy"}, "the suite compares several; name them with --strategies");
  options.refuse({"batch-size", "total-batch-size"}, "the suite compares several; name them with --batch-sizes");
  options.refuse({"accumulation"}, "the suite compares several; name them with --accumulations");
  options.refuse({"input-size"}, "it is the linear stack's; this suite compares on a language model");
}

void set_zero_defaults(SuiteCommand& command) {
  command.experiment.model = "qwen1.5-1.8b";
  command.experiment.seq_length = 2048;
  command.experiment.iterations = 50;
  command.experiment.ranks = 2;
  command.experiment.data = "data";
  command.output_dir = "comparison_results";
}

Plan plan_zero(const Options& options, SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  if (e.simulate_world && !options.given("ranks")) e.ranks.reset();
  if (!options.given("data") && !std::filesystem::exists(e.data)) {
    if (!command.json)
      fmt::print("data: there is no folder '{}' here, so steps read synthetic tokens; --data PATH names your text\n\n",
                 e.data);
    e.data.clear();
  }
  if (!model_source(e).is_language_model())
    user_error("--model {}: this suite compares on a language model; `veil suite linear` takes the linear stack",
               e.model);
  check_options(e);
  const int gpus = gpu_count(), ranks = e.ranks.value_or(1);
  if (e.device != DeviceKind::cpu && gpus > 0 && ranks > gpus && !e.share_gpu) {
    user_error(
        "--ranks {}: this machine has {}; pass --simulate-world {} (one rank of {} is measured and communication "
        "modelled from --link), --share-gpu, --ranks {} or --device cpu",
        ranks, quantity(gpus, "GPU"), ranks, ranks, gpus);
  }
  check_world(command);
  return zero_suite(command.zero, options.passed_on({"model", "seq-length", "iterations", "ranks", "data"},
                                                    and_own({"strategies", "batch-sizes", "accumulations"})));
}

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      {"linear", "DDP or FSDP on a stack of linear layers: basic DDP, basic FSDP, for memory, for speed",
       set_linear_defaults, add_linear_options, plan_linear},
      {"zero", "ZeRO 2 or 3 on a language model: strategies by batch sizes by gradient accumulation", set_zero_defaults,
       add_zero_options, plan_zero},
      llama3_suite(),
      bottlenecks_suite(),
      dit_suite_entry(),
  };
  return all;
}

const Suite& find_suite(const std::string& name) {
  std::vector<std::string> known;
  for (const Suite& suite : suites()) {
    if (suite.name == canonical(name)) return suite;
    known.push_back(suite.name);
  }
  const std::string meant = nearest(name, known);
  user_error("unknown suite '{}': {}allowed are {}", name, meant.empty() ? "" : "did you mean " + meant + "? ",
             join(known, ", "));
}

void print_help() {
  fmt::print("usage: veil suite NAME [options]\n\n");
  for (const Suite& suite : suites()) fmt::print("  {:<13}{}\n", suite.name, suite.help);
  fmt::print("\n`veil suite NAME --help` lists the options.\n");
}

// The experiment's options, as `veil profile` will read them.
ExperimentOptions options_of(const PlannedExperiment& experiment) {
  ExperimentOptions read;
  read.shapes_do = true;
  Options options("profile", "");
  add_step_options(options, read);
  add_private_step_options(options, read);
  add_measuring_options(options, read);
  options.parse(experiment.arguments);
  use_language_defaults(options, read);
  return read;
}

void print_plan(const Plan& plan, const SuiteCommand& command) {
  Json list = Json::array();
  double sum = 0;
  for (const Turn& turn : turns_of(plan, 1)) {
    const size_t i = turn.experiment;
    const double seconds = command.repeat * estimated_seconds(options_of(plan[i]));
    sum += seconds;
    list.push_back({{"experiment", plan[i].name}, {"estimated_seconds", seconds}, {"arguments", plan[i].arguments}});
    if (!command.json)
      fmt::print("{:<24}about {:<14}veil profile {}\n", plan[i].name, format_duration(seconds),
                 join(plan[i].arguments, " "));
  }
  if (command.json) {
    fmt::print("{}\n", list.dump(1));
  } else {
    fmt::print("\n{}{}, about {} in all (by a roofline, without communication); nothing was run\n",
               quantity(std::ssize(plan), "experiment"),
               command.repeat > 1 ? fmt::format(", {} times each", command.repeat) : "", format_duration(sum));
  }
}

SweepOptions sweep_options(const Suite& suite, SuiteCommand& command) {
  SweepOptions sweep;
  sweep.suite = suite.name;
  sweep.resume = !command.resume.empty();
  sweep.folder = sweep.resume ? command.resume : new_run_folder(command.output_dir);
  sweep.repeat = command.repeat;
  sweep.timeout_s = command.timeout_s;
  sweep.bounds.max_temperature_c = command.max_temperature_c;
  return sweep;
}

void add_sweep_options(Options& options, SuiteCommand& command) {
  options.section("the sweep");
  options.add("output-dir", command.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add("resume", command.resume,
              {.help = "go on in this folder, or the newest of --output-dir: what has an ok record is not run again. "
                       "Alone, it also takes the options of the sweep that was begun there",
               .bare = "latest",
               .value = "DIR"});
  options.add("repeat", command.repeat,
              {.help = "measurements of each experiment, turn and turn about", .minimum = 1, .maximum = 1000});
  options.add("timeout", command.timeout_s,
              {.help = "seconds after which one measurement is ended and recorded as failed", .minimum = 0.1});
  options.add(
      "max-temperature", command.max_temperature_c,
      {.help = "degrees C to which a GPU may be warm before a measurement; it is waited for, two minutes at most",
       .minimum = 1});
  options.add("dry-run", command.dry_run, {.help = "list the experiments with estimated times and run none"});
  options.add("json", command.json, {.help = "print the records instead of the table"});
}

// `--resume` without other options of the experiments: those that the sweep was begun with.
std::optional<std::vector<std::string>> begun_with(const Suite& suite, const Options& options,
                                                   const SuiteCommand& command) {
  if (command.resume.empty() || !options.passed_on({}, {"resume", "output-dir", "json", "dry-run"}).empty()) return {};
  const std::string folder = command.resume == "latest" ? newest_run_folder(command.output_dir) : command.resume;
  if (!std::filesystem::is_directory(folder)) user_error("--resume {}: no such folder", folder);
  const auto asked = asked_sweep(folder);
  if (!asked)
    user_error(
        "--resume {}: it holds no sweep.json that says what its sweep was asked for; give a run_* folder of `veil "
        "suite "
        "{}`, or the options once more",
        folder, suite.name);
  if (asked->suite != suite.name) user_error("--resume {}: it is a sweep of `veil suite {}`", folder, asked->suite);
  std::vector<std::string> words = asked->words;
  words.insert(words.end(), {"--resume", folder});
  const auto once = [&](bool wanted, const std::string& word) {
    if (wanted && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  };
  once(command.json, "--json");
  once(command.dry_run, "--dry-run");
  return words;
}

// A table of what went wrong, with what helps.
void print_troubles(const SweepResult& result) {
  for (const Json& record : result.records) {
    if (record.value("outcome", "") != "oom") continue;
    fmt::print("{} did not fit", record.value("title", ""));
    std::vector<std::string> remedies;
    for (const auto& remedy : record.value("remedies", Json::array())) remedies.push_back(remedy.get<std::string>());
    fmt::print("{}\n", remedies.empty() ? "" : "; try " + join(remedies, ", or "));
  }
}

// What the measurements of this call took; those that an earlier one had finished take no time and count for nothing.
class MeasuredTime {
 public:
  void begin() { begin_ms_ = steady_ms(); }
  void end() {
    if (!begin_ms_) return;
    sum_s_ += (steady_ms() - *begin_ms_) / 1000;
    ++count_;
    begin_ms_.reset();
  }
  // Of so many that are still to come; nothing before the first has ended.
  std::optional<double> left_s(int to_come) const {
    return count_ > 0 ? std::optional(sum_s_ / count_ * to_come) : std::nullopt;
  }

 private:
  std::optional<double> begin_ms_;
  double sum_s_ = 0;
  int count_ = 0;
};

int sweep_and_report(const Plan& plan, const SweepOptions& sweep, const SuiteCommand& command) {
  Progress progress;
  const int turns = static_cast<int>(plan.size()) * command.repeat;
  MeasuredTime time;
  const SweepResult result =
      run_sweep(plan, sweep, [&](int turn, const PlannedExperiment& experiment, const Json* record) {
        if (!record) {
          progress.show(fmt::format("[{}/{}] {}", turn + 1, turns, experiment.title), time.left_s(turns - turn));
          time.begin();
          return;
        }
        time.end();
        progress.clear();
        if (command.json) return;
        fmt::print("[{}/{}] {}: {}{}\n", turn + 1, turns, experiment.title, record->value("outcome", "?"),
                   record->value("outcome", "") == "error" ? " (" + record->value("message", "") + ")" : "");
        std::fflush(stdout);
      });
  if (result.interrupted) {
    fmt::print(stderr, "stopped; what is finished is kept, and `veil suite {} --resume {}` goes on\n", sweep.suite,
               sweep.folder);
    return kExitInterrupted;
  }
  const ReportFiles report = write_report(sweep.folder, "");
  if (command.json) {
    fmt::print("{}\n", Json(result.records).dump(1));
  } else {
    fmt::print("\n{}\n", report.summary);
    print_troubles(result);
    fmt::print("page      {}\nrecords   {}\n", join_path(report.output_folder, "index.html"), sweep.folder);
    if (!report.plots_hint.empty()) fmt::print("{}\n", report.plots_hint);
  }
  return result.failed ? kExitFailed : kExitDone;
}

}  // namespace

std::vector<std::string> and_own(std::vector<std::string> names) {
  names.insert(names.end(), kOwnOptions.begin(), kOwnOptions.end());
  return names;
}

void check_world(const SuiteCommand& command) {
  RankInfo planned;
  planned.local_world = planned.world = command.experiment.ranks.value_or(1);
  rank_batch(command.experiment, experiment_world(command.experiment, planned));
  choose_device(command.experiment, planned);
}

int run_suite(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_help();
    return kExitDone;
  }
  const Suite& suite = find_suite(arguments[0]);
  SuiteCommand command;
  command.experiment.shapes_do = true;
  suite.set_defaults(command);
  Options options("suite " + suite.name, suite.help);
  add_step_options(options, command.experiment);
  add_measuring_options(options, command.experiment);
  suite.add_options(options, command);
  for (const PresetFile& preset : built_in_presets()) {
    if (preset.command == suite.name) options.preset_text(preset.name, preset.text);
  }
  add_sweep_options(options, command);
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (!options.parse(words)) return kExitDone;
  if (const auto begun = begun_with(suite, options, command)) {
    std::vector<std::string> again = {suite.name};
    again.insert(again.end(), begun->begin(), begun->end());
    return run_suite(again);
  }
  if (command.resume == "latest") command.resume = newest_run_folder(command.output_dir);
  if (!command.resume.empty() && !std::filesystem::is_directory(command.resume))
    user_error("--resume {}: no such folder", command.resume);
  const Plan plan = suite.plan(options, command);
  if (command.dry_run) {
    print_plan(plan, command);
    return kExitDone;
  }
  SweepOptions sweep = sweep_options(suite, command);
  if (!sweep.resume) sweep.words = options.arguments_without_secrets();
  if (!command.json) {
    std::vector<std::string> shown = kDefining;
    if (model_source(command.experiment).is_language_model()) shown.push_back("seq-length");
    fmt::print("{}  all others as `veil suite {} --help` has them; each record holds every one\n\n",
               options.short_table(shown), suite.name);
  }
  return sweep_and_report(plan, sweep, command);
}

}  // namespace veil
