// veil suite: a question answered by several experiments, each in its own process.
#include "suite/suite.h"

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/quantity.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/preset_files.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "report/report.h"
#include "run/ranks.h"
#include "run/run_folder.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Experiments = std::vector<Experiment>;

constexpr int kExitInterrupted = 130;  // as shells count Ctrl-C

// Options of every suite that are not passed to experiments.
const std::vector<std::string> kSweepOptions = {"output-dir", "resume",  "dry-run",        "json",
                                                "repeat",     "timeout", "max-temperature"};

struct SweepCommand {
  std::string resume;
  int repeat = 1;
  std::optional<double> timeout_s;
  double max_temperature_c = GpuBounds{}.max_temperature_c;
  bool dry_run = false, json = false;
};

void print_help() {
  fmt::print("usage: veil suite NAME [options]\n\n");
  for (const Suite& suite : suites()) fmt::print("  {:<15}{}\n", suite.name, suite.help);
  fmt::print("\n`veil suite NAME --help` lists the options.\n");
}

void add_suite_options(Options& options, Suite& suite) {
  add_step_options(options, suite.config);
  add_measuring_options(options, suite.config);
  if (suite.private_step) add_private_step_options(options, suite.config);
  for (const SuiteOption& option : suite.options) {
    if (options.has(option.name)) options.drop(option.name);
    const OptionSpec spec{.aliases = option.aliases,
                          .help = option.help,
                          .minimum = option.minimum,
                          .maximum = option.maximum,
                          .secret = option.secret,
                          .value = option.value};
    std::visit([&](auto* field) { options.add(option.name, *field, spec); }, option.field);
  }
  for (const RefusedSettings& refused : suite.refused) options.refuse(refused.names, refused.why);
  // What is not told to an experiment gets the default that `veil profile` has for it.
  std::vector<std::string> own = suite.told;
  for (const SuiteOption& option : suite.options) own.push_back(option.name);
  show_defaults(options, suite.config, measuring_defaults(), own);
  for (const PresetFile& preset : built_in_presets()) {
    if (preset.command == suite.name) options.preset_text(preset.name, preset.text);
  }
}

void add_sweep_options(Options& options, std::string& output_dir, SweepCommand& command) {
  options.section("the sweep");
  options.add("output-dir", output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add("resume", command.resume,
              {.help = "go on in this folder, or the newest of --output-dir: what has an ok record "
                       "is not run again. "
                       "Alone, it also takes the options of the sweep that was begun there",
               .bare = "latest",
               .value = "DIR"});
  options.add("repeat", command.repeat,
              {.help = "measurements of each experiment, turn and turn about",
               .minimum = 1,
               .maximum = 1000});
  options.add("timeout", command.timeout_s,
              {.help = "seconds after which one measurement is ended and recorded as failed",
               .minimum = 0.1});
  options.add("max-temperature", command.max_temperature_c,
              {.help = "degrees C to which a GPU may be warm before a measurement; it is waited "
                       "for, two minutes at most",
               .minimum = 1});
  options.add("dry-run", command.dry_run,
              {.help = "list the experiments with estimated times and run none"});
  options.add("json", command.json, {.help = "print the records instead of the table"});
}

// The experiment's configuration, as `veil profile` will read it.
RunConfig options_of(const Experiment& experiment) {
  RunConfig read;
  read.model.shapes_do = true;
  Options options("profile", "");
  add_step_options(options, read);
  add_private_step_options(options, read);
  add_measuring_options(options, read);
  options.parse(experiment.arguments);
  use_model_defaults(options, read);
  return read;
}

void print_experiments(const Experiments& experiments, const SweepCommand& command) {
  Json list = Json::array();
  double sum = 0;
  for (const Turn& turn : turns_of(experiments, 1)) {
    const size_t i = turn.experiment;
    const double seconds = command.repeat * estimated_seconds(options_of(experiments[i]));
    sum += seconds;
    list.push_back({{"experiment", experiments[i].name},
                    {"estimated_seconds", seconds},
                    {"arguments", experiments[i].arguments}});
    if (!command.json)
      fmt::print("{:<24}about {:<14}veil profile {}\n", experiments[i].name,
                 format_duration(seconds), join(experiments[i].arguments, " "));
  }
  if (command.json) {
    fmt::print("{}\n", list.dump(1));
  } else {
    fmt::print("\n{}{}, about {} in all (predicted); nothing was run\n",
               quantity(std::ssize(experiments), "experiment"),
               command.repeat > 1 ? fmt::format(", {} times each", command.repeat) : "",
               format_duration(sum));
  }
}

// The arguments that the sweep was started with, if `--resume` is given without other options.
std::optional<std::vector<std::string>> begun_with(const Suite& suite, const Options& options,
                                                   const SweepCommand& command) {
  if (command.resume.empty() ||
      !options.passed_on({}, {"resume", "output-dir", "json", "dry-run"}).empty())
    return {};
  const std::string folder =
      command.resume == "latest" ? newest_run_folder(suite.output_dir) : command.resume;
  if (!std::filesystem::is_directory(folder)) user_error("--resume {}: no such folder", folder);
  const auto asked = asked_sweep(folder);
  if (!asked)
    user_error(
        "--resume {}: it holds no sweep.json that says which sweep was requested; give a run_* "
        "folder of `veil "
        "suite "
        "{}`, or the options once more",
        folder, suite.name);
  if (asked->suite != suite.name)
    user_error("--resume {}: it is a sweep of `veil suite {}`", folder, asked->suite);
  std::vector<std::string> words = asked->words;
  words.insert(words.end(), {"--resume", folder});
  const auto once = [&](bool wanted, const std::string& word) {
    if (wanted && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  };
  once(command.json, "--json");
  once(command.dry_run, "--dry-run");
  return words;
}

// How long measurements take. Those that an earlier call had finished are not counted.
class MeasuredTime {
 public:
  void begin() { begin_ms_ = steady_ms(); }
  void end() {
    if (!begin_ms_) return;
    sum_s_ += (steady_ms() - *begin_ms_) / 1000;
    ++count_;
    begin_ms_.reset();
  }
  // Of the measurements that remain; nothing before the first has ended.
  std::optional<double> left_s(int to_come) const {
    return count_ > 0 ? std::optional(sum_s_ / count_ * to_come) : std::nullopt;
  }

 private:
  std::optional<double> begin_ms_;
  double sum_s_ = 0;
  int count_ = 0;
};

int sweep_and_report(const Experiments& experiments, const SweepOptions& sweep,
                     const SweepCommand& command) {
  Progress progress;
  const int turns = static_cast<int>(experiments.size()) * command.repeat;
  MeasuredTime time;
  const SweepResult result = run_sweep(
      experiments, sweep, [&](int turn, const Experiment& experiment, const Record* record) {
        if (!record) {
          progress.show(fmt::format("[{}/{}] {}", turn + 1, turns, experiment.title),
                        time.left_s(turns - turn));
          time.begin();
          return;
        }
        time.end();
        progress.clear();
        if (command.json) return;
        fmt::print("[{}/{}] {}: {}{}\n", turn + 1, turns, experiment.title, record->outcome,
                   record->outcome == "error" ? " (" + record->message + ")" : "");
        std::fflush(stdout);
      });
  if (result.interrupted) {
    fmt::print(stderr,
               "stopped; what is finished is kept, and `veil suite {} --resume {}` continues\n",
               sweep.suite, shell_word(sweep.folder));
    return kExitInterrupted;
  }
  const ReportFiles report = write_report(sweep.folder, "", suite_pages());
  if (command.json) {
    Json all = Json::array();
    for (const Record& record : result.records) all.push_back(to_json(record));
    fmt::print("{}\n", all.dump(1));
  } else {
    fmt::print("\n{}\n", report.summary);
    fmt::print("page      {}\nrecords   {}\n", join_path(report.output_folder, "index.html"),
               sweep.folder);
    if (!report.plots_hint.empty()) fmt::print("{}\n", report.plots_hint);
  }
  return result.failed ? kExitFailed : kExitDone;
}

// Settings that are shown before a suite starts, whether given or not.
std::vector<std::string> shown_settings(const Suite& suite) {
  std::vector<std::string> names = {"model", "mode", "batch-size", "iterations", "device", "ranks"};
  for (const SuiteOption& option : suite.options) {
    if (option.is_list()) names.push_back(option.name);
  }
  if (model_source(suite.config).is_language_model()) names.push_back("seq-length");
  return names;
}

Experiments experiments_of(Suite& suite, const Options& options, const SweepCommand& command) {
  const SuiteCall call{.given = [&](const std::string& name) { return options.given(name); },
                       .dry_run = command.dry_run};
  std::vector<std::string> notices;
  if (suite.prepare) notices = suite.prepare(suite.config, call);
  if (suite.config.step.total_batch_size &&
      !(options.has("batch-size") && options.given("batch-size")))
    suite.config.step.batch_size = 0;
  if (!command.dry_run) check_machine(suite.config, suite.name);
  check_shared(suite.config);
  for (const std::string& notice : notices) {
    if (!command.json) fmt::print("{}\n\n", notice);
  }
  std::vector<std::string> kept_back = suite.kept_back();
  std::erase_if(suite.told, [&](const std::string& name) {
    return std::find(kept_back.begin(), kept_back.end(), name) != kept_back.end();
  });
  kept_back.insert(kept_back.end(), kSweepOptions.begin(), kSweepOptions.end());
  return suite.experiments(options.passed_on(suite.told, kept_back));
}

}  // namespace

int run_suite(const CommandCall& call) {
  const std::vector<std::string>& arguments = call.arguments;
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_help();
    return kExitDone;
  }
  Suite suite = find_suite(arguments[0]);
  suite.config.model.shapes_do = true;
  SweepCommand command;
  Options options("suite " + suite.name, suite.help);
  add_suite_options(options, suite);
  add_sweep_options(options, suite.output_dir, command);
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (!options.parse_call({.arguments = words, .describe = call.describe})) return kExitDone;
  if (const auto begun = begun_with(suite, options, command)) {
    std::vector<std::string> again = {suite.name};
    again.insert(again.end(), begun->begin(), begun->end());
    return run_suite({.arguments = again});
  }
  if (command.resume == "latest") command.resume = newest_run_folder(suite.output_dir);
  if (!command.resume.empty() && !std::filesystem::is_directory(command.resume))
    user_error("--resume {}: no such folder", command.resume);
  const Experiments experiments = experiments_of(suite, options, command);
  if (command.dry_run) {
    print_experiments(experiments, command);
    return kExitDone;
  }
  SweepOptions sweep{
      .folder = command.resume.empty() ? new_run_folder(suite.output_dir) : command.resume,
      .suite = suite.name,
      .resume = !command.resume.empty(),
      .repeat = command.repeat,
      .timeout_s = command.timeout_s,
      .words = {},
      .bounds = {.max_temperature_c = command.max_temperature_c}};
  if (!sweep.resume) sweep.words = options.arguments_without_secrets();
  if (!command.json) {
    const ModelSource source = model_source(suite.config);
    fmt::print(
        "{}  all others as `veil suite {} --help` has them; each record holds every one\n"
        "  weights {}\n\n",
        options.short_table(shown_settings(suite)), suite.name,
        source.has_weights() ? "from " + source.folder : weights_text(source, {}));
  }
  return sweep_and_report(experiments, sweep, command);
}

}  // namespace veil
