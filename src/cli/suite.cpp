// veil suite: a question answered by several experiments, each in its own process.
#include <filesystem>

#include "base/files.h"
#include "cli/command.h"
#include "cli/experiment_options.h"
#include "cli/progress.h"
#include "report/report.h"
#include "suite/dit.h"
#include "suite/linear.h"
#include "suite/profile_run.h"
#include "suite/zero.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;
using Plan = std::vector<PlannedExperiment>;

struct SuiteCommand {
  ExperimentOptions experiment;
  ZeroGrid zero;
  DitGrid dit;
  std::string output_dir = "results", resume;
  bool dry_run = false, json = false;
};

// One question: its options and how they become experiments.
struct Suite {
  std::string name, help;
  void (*set_defaults)(SuiteCommand& command);
  void (*add_options)(Options& options, SuiteCommand& command);  // beside those of a step and of measuring
  Plan (*plan)(const Options& options, SuiteCommand& command);   // UserError for what could not be run
};

const std::vector<std::string> kOwnOptions = {"output-dir", "resume", "dry-run", "json"};

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

void set_linear_defaults(SuiteCommand&) {}  // those of `veil profile`

void add_linear_options(Options& options, SuiteCommand&) {
  options.refuse({"strategy", "cpu-offload", "forward-prefetch", "backward-prefetch"},
                 "the suite's four set-ups decide it themselves; `veil profile` measures one of your own");
  add_experiment_presets(options, /*measuring=*/true);
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
  options.preset("tiny", {{"model", "qwen2-tiny"},
                          {"seq-length", "128"},
                          {"batch-sizes", "2,4,8"},
                          {"accumulations", "1,2"},
                          {"warmup", "2"},
                          {"iterations", "5"}});
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
        "--ranks {}: this machine has {} GPU{}; pass --simulate-world {} (one rank of {} is measured and communication "
        "modelled from --link), --share-gpu, --ranks {} or --device cpu",
        ranks, gpus, gpus == 1 ? "" : "s", ranks, ranks, gpus);
  }
  check_world(command);
  return zero_suite(command.zero, options.passed_on({"model", "seq-length", "iterations", "ranks", "data"},
                                                    and_own({"strategies", "batch-sizes", "accumulations"})));
}

void set_dit_defaults(SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  e.model = "dit-l/8";
  e.batch_size = 2;
  e.warmup = 0;
  e.iterations = 3;
  e.optimizer = OptimizerKind::adamw;
  command.output_dir = "memory_profiling_results";
}

void add_dit_options(Options& options, SuiteCommand& command) {
  DitGrid& grid = command.dit;
  add_private_step_options(options, command.experiment);
  options.add("modes", grid.modes, {.aliases = {"experiments"}, .help = "ways to clip that are compared"});
  options.add("models", grid.models, {.help = "one after another, instead of --model: dit-l/8,dit-xl/8"});
  options.add("image-sizes", grid.image_sizes, {.help = "one after another, instead of --image-size", .minimum = 1});
  options.add("patch-sizes", grid.patch_sizes, {.help = "one after another, instead of --patch-size", .minimum = 1});
  options.add("batch-sizes", grid.batch_sizes, {.help = "one after another, instead of --batch-size", .minimum = 1});
  options.add("accumulations", grid.accumulations,
              {.help = "one after another, instead of --accumulation", .minimum = 1, .maximum = 1000000});
  options.add("attentions", grid.attentions, {.help = "one after another, instead of --attention"});
  options.refuse({"mode"}, "the suite compares several; name them with --modes");
  options.refuse({"input-size", "seq-length", "task", "labels", "data", "tokenizer"},
                 "this suite measures diffusion transformers on synthetic images");
  options.preset("tiny", {{"model", "dit-tiny"}, {"batch-size", "8"}, {"warmup", "1"}});
}

Plan plan_dit(const Options& options, SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  // Every model with every size, before the first experiment.
  for (const std::string& model : command.dit.models.empty() ? std::vector{e.model} : command.dit.models) {
    ExperimentOptions tried = e;
    tried.model = model;
    if (!find_model(model, e.hub_cache).diffusion)
      user_error("--model {}: this suite measures diffusion transformers; presets are {}", model,
                 join(dit_preset_names(), ", "));
    for (const int64_t image : command.dit.image_sizes.empty() ? std::vector<int64_t>{0} : command.dit.image_sizes) {
      if (image > 0) tried.diffusion.image_size = image;
      for (const int64_t patch : command.dit.patch_sizes.empty() ? std::vector<int64_t>{0} : command.dit.patch_sizes) {
        if (patch > 0) tried.diffusion.patch = patch;
        model_source(tried);
      }
    }
  }
  check_options(e);
  check_world(command);
  std::vector<std::string> always = {"model", "batch-size", "warmup", "iterations", "optimizer"};
  std::vector<std::string> listed = {"modes",       "models",        "image-sizes", "patch-sizes",
                                     "batch-sizes", "accumulations", "attentions"};
  const auto instead = [&](bool given, const char* name) {
    if (!given) return;
    listed.push_back(name);
    std::erase(always, name);
  };
  instead(!command.dit.models.empty(), "model");
  instead(!command.dit.image_sizes.empty(), "image-size");
  instead(!command.dit.patch_sizes.empty(), "patch-size");
  instead(!command.dit.batch_sizes.empty(), "batch-size");
  instead(!command.dit.accumulations.empty(), "accumulation");
  instead(!command.dit.attentions.empty(), "attention");
  return dit_suite(command.dit, options.passed_on(always, and_own(listed)));
}

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all = {
      {"linear", "DDP or FSDP on a stack of linear layers: basic DDP, basic FSDP, for memory, for speed",
       set_linear_defaults, add_linear_options, plan_linear},
      {"zero", "ZeRO 2 or 3 on a language model: strategies by batch sizes by gradient accumulation", set_zero_defaults,
       add_zero_options, plan_zero},
      {"dit-dp", "ways to clip on a diffusion transformer: memory by component, and time", set_dit_defaults,
       add_dit_options, plan_dit},
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
  for (const Suite& suite : suites()) fmt::print("  {:<8}{}\n", suite.name, suite.help);
  fmt::print("\n`veil suite NAME --help` lists the options.\n");
}

void print_plan(const Plan& plan, bool json) {
  if (json) {
    Json list = Json::array();
    for (const PlannedExperiment& experiment : plan)
      list.push_back({{"experiment", experiment.name}, {"arguments", experiment.arguments}});
    fmt::print("{}\n", list.dump(1));
    return;
  }
  for (const PlannedExperiment& experiment : plan)
    fmt::print("{:<18}veil profile {}\n", experiment.name, join(experiment.arguments, " "));
  fmt::print("\n{} experiments; nothing was run\n", plan.size());
}

SweepOptions sweep_options(const Suite& suite, SuiteCommand& command) {
  SweepOptions sweep;
  sweep.suite = suite.name;
  sweep.resume = !command.resume.empty();
  if (command.resume == "latest") command.resume = newest_run_folder(command.output_dir);
  if (sweep.resume && !std::filesystem::is_directory(command.resume))
    user_error("--resume {}: no such folder", command.resume);
  sweep.folder = sweep.resume ? command.resume : new_run_folder(command.output_dir);
  return sweep;
}

}  // namespace

int run_suite(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    print_help();
    return kExitDone;
  }
  const Suite& suite = find_suite(arguments[0]);
  SuiteCommand command;
  suite.set_defaults(command);
  Options options("suite " + suite.name, suite.help);
  add_step_options(options, command.experiment);
  add_measuring_options(options, command.experiment);
  suite.add_options(options, command);
  options.add("output-dir", command.output_dir, {.help = "parent of the run's folder", .value = "DIR"});
  options.add("resume", command.resume,
              {.help = "go on in this folder, or the newest of --output-dir: what has an ok record is not run again",
               .bare = "latest",
               .value = "DIR"});
  options.add("dry-run", command.dry_run, {.help = "list the experiments and run none"});
  options.add("json", command.json, {.help = "print the records instead of the table"});
  if (!options.parse({arguments.begin() + 1, arguments.end()})) return kExitDone;
  const Plan plan = suite.plan(options, command);
  if (command.dry_run) {
    print_plan(plan, command.json);
    return kExitDone;
  }
  const SweepOptions sweep = sweep_options(suite, command);
  if (!command.json) fmt::print("{}\n", options.table());
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
