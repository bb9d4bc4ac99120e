// What the suites that compare clipping modes share, and the two of seeds 000 and 001.
#include "cli/suite.h"
#include "models/language_model.h"

namespace veil {
namespace {

using Plan = std::vector<PlannedExperiment>;

constexpr int64_t kLargeParameters = 300'000'000;  // beyond this a CPU takes hours

// Options whose value a suite sets by itself, so that each experiment is told.
const std::vector<std::string> kTold = {"model",      "task",      "labels",  "batch-size",    "warmup",
                                        "iterations", "optimizer", "storage", "sigma",         "clip-norm",
                                        "compute",    "reduce",    "device",  "learning-rate", "profile"};

void take_bf16_on_gpus(const Options& options, SuiteCommand& command) {
  if (!runs_on_gpu(command)) return;
  ExperimentOptions& e = command.experiment;
  if (!options.given("storage")) e.storage = Precision::bf16;
  if (!options.given("compute")) e.compute = Precision::bf16;
  if (!options.given("reduce")) e.reduce = Precision::bf16;
}

Plan plan_modes(const Options& options, SuiteCommand& command, const std::string& suite) {
  ExperimentOptions& e = command.experiment;
  if (canonical(e.model).rfind("linear", 0) == 0)
    user_error("--model {}: this suite compares on a language model; `veil suite linear` takes the linear stack",
               e.model);
  offer_tiny(command, suite);
  take_bf16_on_gpus(options, command);
  for (const Mode mode : command.modes.modes) {
    e.clip_choice.mode = mode;
    if (mode == Mode::no_dp && e.clip_choice.sets_a_part())
      user_error(
          "--rule, --pass-plan, --tile-size and --memory-budget are of a private step: leave no_dp out of --mode");
    for (const int64_t length : command.modes.seq_lengths) {
      e.seq_length = length;
      check_options(e);
      make_model(e, model_source(e), 1);
    }
  }
  check_world(command);
  return mode_suite(
      command.modes,
      options.passed_on(kTold, and_own({"mode", "seq-length", "token", "use-flash", "use-bookkeeping", "cpu"})));
}

// Seed 000: what a private step costs over one that is not, in memory and time.
void set_llama3_defaults(SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  e.model = "llama3.1-8b";
  e.task = Task::sequence_classification;
  e.labels = 3;
  e.batch_size = 2;
  e.iterations = 3;
  e.warmup = 1;
  e.learning_rate = 1e-5;
  e.optimizer = OptimizerKind::sgd;
}

Plan plan_llama3(const Options& options, SuiteCommand& command) {
  return plan_modes(options, command, "llama3-dp");
}

// Seed 001: which part of a private step grows how fast with the sequence.
void set_bottleneck_defaults(SuiteCommand& command) {
  ExperimentOptions& e = command.experiment;
  e.model = "llama3.2-1b";
  e.batch_size = 4;
  e.iterations = 5;
  e.warmup = 2;
  e.learning_rate = 1e-5;
  e.optimizer = OptimizerKind::sgd;
  e.profile = {ProfileKind::phases, ProfileKind::norms, ProfileKind::memory};
  command.modes = {.modes = {Mode::flash, Mode::bookkeeping}, .seq_lengths = {1024, 2048, 4096, 8192, 16384}};
}

void add_bottleneck_options(Options& options, SuiteCommand& command) {
  add_mode_grid(options, command);
  options.add("use-flash", command.use_flash, {.help = "the same as --mode flash"});
  options.add("use-bookkeeping", command.use_bookkeeping, {.help = "the same as --mode bookkeeping"});
  options.add("cpu", command.use_cpu,
              {.help = "on the CPU, with llama-tiny and lengths from 128 to 1024 unless others are named"});
}

Plan plan_bottlenecks(const Options& options, SuiteCommand& command) {
  const bool by_words = command.use_flash || command.use_bookkeeping;
  if (by_words && options.given("mode"))
    user_error("--use-flash and --use-bookkeeping name modes as --mode does: give one of them");
  if (by_words) {
    command.modes.modes.clear();
    if (command.use_flash) command.modes.modes.push_back(Mode::flash);
    if (command.use_bookkeeping) command.modes.modes.push_back(Mode::bookkeeping);
  }
  ExperimentOptions& e = command.experiment;
  if (command.use_cpu) {
    if (e.device == DeviceKind::gpu) user_error("--cpu with --device gpu: pass one of them");
    e.device = DeviceKind::cpu;
    if (!options.given("model")) e.model = "llama-tiny";
    if (!options.given("seq-length")) command.modes.seq_lengths = {128, 256, 512, 1024};
  }
  return plan_modes(options, command, "bottlenecks");
}

}  // namespace

bool runs_on_gpu(const SuiteCommand& command) {
  const DeviceKind device = command.experiment.device;
  return device == DeviceKind::gpu || (device == DeviceKind::automatic && gpu_count() > 0);
}

void offer_tiny(const SuiteCommand& command, const std::string& suite) {
  const ExperimentOptions& e = command.experiment;
  if (command.dry_run || e.device != DeviceKind::automatic || gpu_count() > 0) return;
  ExperimentOptions short_one = e;
  short_one.seq_length = 1;
  const int64_t parameters =
      make_model(short_one, model_source(short_one), 1).shape(1, dtype_of(e.compute), false).param_count();
  if (parameters < kLargeParameters) return;
  throw MissingBackend(
      fmt::format("no GPU answers here, and {} is large for a CPU: `veil suite {} --preset tiny` runs the same "
                  "experiments in a minute, --device cpu insists",
                  e.model, suite));
}

void add_mode_grid(Options& options, SuiteCommand& command) {
  add_private_step_options(options, command.experiment);
  options.drop("mode");
  options.drop("seq-length");
  options.add("mode", command.modes.modes,
              {.aliases = {"modes"},
               .help = fmt::format("which are compared: {}", join(all_names<Mode>(), ", ")),
               .value = "MODE"});
  options.add("seq-length", command.modes.seq_lengths,
              {.aliases = {"seq_lengths", "seq", "seq_len", "max_length", "sequence_length"},
               .help = "tokens in a sequence, one after another",
               .minimum = 1,
               .maximum = 1 << 24});
  options.add("token", command.token,
              {.help = "of the hub: a suite downloads nothing, `veil fetch` does", .secret = true, .value = "TOKEN"});
  options.refuse({"input-size"}, "it is the linear stack's; this suite compares on a language model");
}

Suite llama3_suite() {
  return {"llama3-dp", "what privacy costs on Llama 3: clipping modes by sequence lengths, memory and time",
          set_llama3_defaults, add_mode_grid, plan_llama3};
}

Suite bottlenecks_suite() {
  return {"bottlenecks", "which phase of a private step takes the time, and how it grows with the sequence",
          set_bottleneck_defaults, add_bottleneck_options, plan_bottlenecks};
}

}  // namespace veil
