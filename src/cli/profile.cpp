// veil profile: one configuration, measured.
#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "profile/memory.h"
#include "record/folder.h"
#include "run/profile_run.h"
#include "run/ranks.h"
#include "suite/dit.h"

namespace veil {
namespace {

struct ProfileCommand {
  RunConfig config;
  std::string output, output_dir;
  bool json = false, dry_run = false, overwrite = false;
  double collective_timeout_s = kCollectiveTimeoutSeconds;
};

std::string number(std::optional<double> value, const char* format_as = "{:.3f}") {
  return value ? fmt::format(fmt::runtime(format_as), *value) : "-";
}

std::string bytes(std::optional<double> count) {
  return format_bytes(static_cast<int64_t>(count.value_or(0)));
}

void print_phases(const Record& record) {
  const double step = *record.avg_time_ms;
  const auto share = [&](double ms) { return fmt::format("{:.1f} %", 100 * ms / step); };
  Table phases({"phase", "ms", "share"});
  for (const auto& [phase, ms] : phases_in_order(record))
    phases.row({phase, number(ms), share(ms)});
  for (const auto& [lane, transfer] : record.communication)
    phases.row({"waiting for " + lane, number(transfer.exposed_ms), share(*transfer.exposed_ms)});
  fmt::print("\n{}", phases.text());
  if (!record.layer_ms.empty()) {
    Table layers({"row", "ms"});
    for (const auto& [row, ms] : record.layer_ms) layers.row({row, number(ms)});
    fmt::print("\n{}", layers.text());
  }
  if (record.communication.empty()) return;
  Table lanes({"communication", "total ms", "exposed ms", "modelled ms", "bytes per step"});
  for (const auto& [lane, transfer] : record.communication)
    lanes.row({lane, number(transfer.total_ms), number(transfer.exposed_ms),
               number(transfer.modelled_ms), bytes(transfer.bytes)});
  fmt::print("\n{}", lanes.text());
}

void print_summary(const Record& record) {
  if (record.outcome == "oom") {
    fmt::print("out of memory: {}\n", record.message);
    for (const std::string& remedy : *record.remedies) fmt::print("  try {}\n", remedy);
    return;
  }
  if (record.weights) fmt::print("\nweights   {}\n", *record.weights);
  if (!record.data.source.empty())
    fmt::print("data      {}, tokenizer: {}\n", record.data.source, record.data.tokenizer);
  Table table({"figure", "value"});
  table.row({"step", fmt::format("{} +- {}", format_ms(*record.avg_time_ms),
                                 format_ms(*record.std_time_ms))});
  if (record.modelled_step_ms)
    table.row(
        {"step, communication modelled",
         fmt::format("{} at {} GB/s", format_ms(*record.modelled_step_ms), *record.link_gb_per_s)});
  if (record.predicted_step_ms)
    table.row({"step, predicted", format_ms(*record.predicted_step_ms)});
  table.row({"peak memory", bytes(record.peak_memory_bytes)});
  table.row({"peak memory, estimated", bytes(record.estimated_peak_bytes)});
  if (record.pinned_peak_bytes.value_or(0) > 0)
    table.row({"pinned host memory", bytes(record.pinned_peak_bytes)});
  table.row({"last loss", number(record.losses.back(), "{:.6g}")});
  table.row({"graph", record.graph});
  fmt::print("\n{}", table.text());
  Table breakdown({"memory at the peak", "bytes"});
  for (int i = 0; i < kCategories; ++i) {
    const auto found = record.breakdown.find(category_name(static_cast<Category>(i)));
    if (found != record.breakdown.end()) breakdown.row({found->first, bytes(found->second)});
  }
  fmt::print("\n{}", breakdown.text());
  if (!record.phases.empty()) print_phases(record);
  if (record.kernels) {
    Table kernels({"operator or kernel", "where", "calls", "total ms"});
    for (const RecordKernel& kernel : *record.kernels)
      kernels.row({kernel.name.substr(0, 70), kernel.on_gpu ? "GPU" : "host",
                   std::to_string(kernel.calls), number(kernel.total_ms)});
    fmt::print("\n{}", kernels.text());
  }
}

// "" if nothing is traced.
std::string trace_folder(const ProfileCommand& command, int world) {
  if (command.config.measure.wants(ProfileKind::none)) return "";
  return join_path(command.output_dir, configuration_name(command.config, world));
}

// What would fail later is told once, before any rank starts and before anything is written.
void check_before_work(const ProfileCommand& command, const RankInfo& info) {
  const int world = experiment_world(command.config, info);
  rank_batch(command.config, world);
  const Device device = choose_device(command.config, info);
  if (command.config.step.graph == GraphMode::on && !device.is_cuda()) {
    user_error("--graph on cannot be met (no GPU): pass --graph auto or off");
  }
  if (!command.output.empty()) check_output_file(command.output, command.overwrite);
  if (const std::string folder = trace_folder(command, world); !folder.empty())
    check_folder_can_be_made(folder);
}

// Traces are named from the record's own folder, so that the two can move together.
void write_beside_traces(const std::string& path, Record record) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(path).parent_path();
  for (std::string& trace : record.traces)
    trace = fs::absolute(trace).lexically_relative(folder).string();
  write_record(path, record);
}

// A language model's settings once more, under the names that other profilers of private training
// give them.
void add_common_names(const RunConfig& run, Record& record) {
  if (!record.vocab_size) return;
  record.config["model_name"] = run.model.name;
  record.config["vocab_size"] = *record.vocab_size;
  record.config["learning_rate"] = run.optimizer.learning_rate;
  record.config["sigma"] = *run.privacy.sigma;
  record.config["max_grad_norm"] = *run.privacy.clip_norm;
}

int measure(const ProfileCommand& command, const Options& options, const RankInfo& info) {
  const bool speaks = info.rank == 0;
  const int world = experiment_world(command.config, info);
  if (speaks) check_before_work(command, info);
  if (speaks && !command.json)
    fmt::print("{}  all other settings are the defaults; the record holds every one\n\n",
               options.short_table({"model", "strategy", "batch-size"}));
  RunPlace place;
  place.info = info;
  place.trace_folder = trace_folder(command, world);
  if (speaks && !place.trace_folder.empty()) ensure_folder_writable(place.trace_folder);
  std::FILE* const stages = command.json ? stderr : stdout;  // --json leaves stdout to the record
  place.on_stage = [stages](const RecordStage& line) {
    fmt::print(stages, "{}\n", to_json(line).dump());
    std::fflush(stages);
  };
  Progress progress;
  if (is_terminal(stderr)) {
    place.on_progress = [&](const std::string& text, int64_t done, int64_t total) {
      progress.show(text, done, total);
    };
  }
  Record record = run_experiment(command.config, place);
  progress.clear();
  record.command = options.command_line();
  record.config = options.json();
  record.config["layers"] = layer_count(command.config, world);
  add_common_names(command.config, record);
  if (record.diffusion) record.experiment = dit_mode_title(command.config.privacy.method.mode);
  // Out of memory on this rank alone: the others wait in a collective and must be ended, once the
  // record is safe.
  if (info.world > 1 && record.oom_rank) {
    if (!command.output.empty()) write_beside_traces(command.output, record);
    throw std::runtime_error("out of memory: " + record.message);
  }
  if (!speaks) return kExitDone;
  if (!command.output.empty()) write_beside_traces(command.output, record);
  if (command.json) {
    fmt::print("{}\n", to_json(record).dump());
  } else {
    print_summary(record);
    for (const std::string& trace : record.traces) fmt::print("trace: {}\n", trace);
    if (!command.output.empty()) fmt::print("record: {}\n", command.output);
  }
  return record.outcome == "ok" ? kExitDone : kExitFailed;
}

}  // namespace

int run_profile(const CommandCall& call) {
  ProfileCommand command;
  command.output_dir = "traces";
  command.config.model.shapes_do = true;
  Options options("profile",
                  "measures one configuration: time, memory by category, phases, communication");
  add_step_options(options, command.config);
  add_private_step_options(options, command.config);
  add_measuring_options(options, command.config);
  add_timeout_option(options, command.collective_timeout_s);
  add_experiment_presets(options, /*measuring=*/true);
  options.section("measurement");
  bool use_profiler = false;
  options.add(
      "use-profiler", use_profiler,
      {.aliases = {"enable_profiling"}, .help = "the same as --profile phases,kernels,memory"});
  std::string token;
  options.add("token", token,
              {.help = "of the hub: a profile downloads nothing, `veil fetch` does",
               .secret = true,
               .value = "TOKEN"});
  options.section("output");
  options.add("output", command.output, {.help = "write the record here", .value = "FILE"});
  options.add("output-dir", command.output_dir,
              {.aliases = {"logdir"},
               .help = "folder of traces, one folder per configuration in it",
               .value = "DIR"});
  add_overwrite_option(options, command.overwrite);
  options.add("json", command.json, {.help = "print the record instead of tables"});
  options.add("dry-run", command.dry_run,
              {.help = "print the settings that would be measured, as JSON with --json, and stop"});
  show_defaults(options, command.config, measuring_defaults());
  if (!options.parse_call(call)) return kExitDone;
  if (const char* watched = std::getenv("VEIL_PROFILE");
      watched && *watched && !options.given("profile")) {
    CommandCall again = call;
    again.arguments.insert(again.arguments.end(), {"--profile", watched});
    return run_profile(again);
  }
  if (use_profiler)
    command.config.measure.profile = {ProfileKind::phases, ProfileKind::kernels,
                                      ProfileKind::memory};
  // Options that only diffusion transformers have name the kind of model.
  if (!options.given("model") && (options.given("image-size") || options.given("patch-size")))
    command.config.model.name = "dit-l/8";
  use_model_defaults(options, command.config);
  check_config(command.config);
  options.settle_defaults();
  if (command.dry_run) {
    print_settings(options, command.json);
    return kExitDone;
  }

  RankInfo info = rank_info_from_environment();
  info.collective_timeout_s = command.collective_timeout_s;
  RankInfo wanted = info;
  if (info.launcher == Launcher::none)
    wanted.world = wanted.local_world = command.config.placement.ranks.value_or(1);
  settle_batch(command.config, experiment_world(command.config, wanted));
  std::optional<RankStart> start;
  if (info.launcher == Launcher::none && wanted.world > 1) {
    check_before_work(command, wanted);
    start = RankStart{wanted.world, {"profile"}};
    start->words.insert(start->words.end(), call.arguments.begin(), call.arguments.end());
  }
  return on_ranks(info, start, [&] {
    memory::install();
    return measure(command, options, info);
  });
}

}  // namespace veil
