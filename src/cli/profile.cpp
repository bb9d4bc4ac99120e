// veil profile: one configuration, measured.
#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/experiment_options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "profile/ledger.h"
#include "suite/profile_run.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

struct ProfileCommand {
  ExperimentOptions experiment;
  std::string output, output_dir;
  bool json = false;
};

std::string number(const Json& value, const char* format_as = "{:.3f}") {
  return value.is_number() ? fmt::format(fmt::runtime(format_as), value.get<double>()) : "-";
}

void print_phases(const Json& record) {
  const double step = record["avg_time_ms"];
  Table phases({"phase", "ms", "share"});
  for (const auto& [phase, entry] : record["phases"].items()) {
    if (phase == "layers") continue;
    phases.row({phase, number(entry["ms"]), fmt::format("{:.1f} %", 100 * entry["ms"].get<double>() / step)});
  }
  for (const auto& [lane, entry] : record["communication"].items()) {
    phases.row({"waiting for " + lane, number(entry["exposed_ms"]),
                fmt::format("{:.1f} %", 100 * entry["exposed_ms"].get<double>() / step)});
  }
  fmt::print("\n{}", phases.text());
  if (record["phases"].contains("layers")) {
    Table layers({"row", "ms"});
    for (const auto& [row, ms] : record["phases"]["layers"].items()) layers.row({row, number(ms)});
    fmt::print("\n{}", layers.text());
  }
  if (!record["communication"].empty()) {
    Table lanes({"communication", "total ms", "exposed ms", "modelled ms", "bytes a step"});
    for (const auto& [lane, entry] : record["communication"].items()) {
      lanes.row({lane, number(entry["total_ms"]), number(entry["exposed_ms"]),
                 number(entry.value("modelled_ms", Json())), format_bytes(entry["bytes"])});
    }
    fmt::print("\n{}", lanes.text());
  }
}

void print_summary(const Json& record) {
  if (record.value("outcome", "") == "oom") {
    fmt::print("out of memory: {}\n", record.value("message", ""));
    for (const auto& remedy : record["remedies"]) fmt::print("  try {}\n", remedy.get<std::string>());
    return;
  }
  Table table({"figure", "value"});
  table.row({"step", fmt::format("{} +- {}", format_ms(record["avg_time_ms"]), format_ms(record["std_time_ms"]))});
  if (record.contains("modelled_step_ms")) {
    table.row({"step, communication modelled", fmt::format("{} at {} GB/s", format_ms(record["modelled_step_ms"]),
                                                           record["link_gb_per_s"].get<double>())});
  }
  table.row({"peak memory", format_bytes(record["peak_memory_bytes"])});
  table.row({"peak memory, estimated", format_bytes(record["estimated_peak_bytes"])});
  if (record["pinned_peak_bytes"].get<int64_t>() > 0)
    table.row({"pinned host memory", format_bytes(record["pinned_peak_bytes"])});
  table.row({"last loss", number(record["losses"].back(), "{:.6g}")});
  table.row({"graph", record["graph"]});
  fmt::print("\n{}", table.text());
  Table breakdown({"memory at the peak", "bytes"});
  for (const auto& [category, bytes] : record["breakdown"].items()) breakdown.row({category, format_bytes(bytes)});
  fmt::print("\n{}", breakdown.text());
  if (record.contains("phases")) print_phases(record);
  if (record.contains("kernels")) {
    Table kernels({"operator or kernel", "where", "calls", "total ms"});
    for (const auto& kernel : record["kernels"]) {
      kernels.row({kernel["name"].get<std::string>().substr(0, 70), kernel["on_gpu"].get<bool>() ? "GPU" : "host",
                   std::to_string(kernel["calls"].get<int64_t>()), number(kernel["total_ms"])});
    }
    fmt::print("\n{}", kernels.text());
  }
}

// "" where nothing is traced.
std::string trace_folder(const ProfileCommand& command, int world) {
  if (command.experiment.wants(ProfileKind::none)) return "";
  return join_path(command.output_dir, configuration_name(command.experiment, world));
}

// What would fail later is told once, before any rank starts and before anything is written.
void check_before_work(const ProfileCommand& command, const RankInfo& info) {
  const int world = experiment_world(command.experiment, info);
  rank_batch(command.experiment, world);
  const Device device = choose_device(command.experiment, info);
  if (command.experiment.graph == GraphMode::on && !device.is_cuda()) {
    user_error("--graph on cannot be met (no GPU): pass --graph auto or off");
  }
  if (!command.output.empty()) check_file_can_be_written(command.output);
  if (const std::string folder = trace_folder(command, world); !folder.empty()) check_folder_can_be_made(folder);
}

// Traces are named from the record's own folder, so that the two can move together.
void write_record(const std::string& path, Json record) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(path).parent_path();
  for (auto& trace : record["traces"])
    trace = fs::absolute(trace.get<std::string>()).lexically_relative(folder).string();
  write_file_atomically(path, record.dump(1) + "\n");
}

// The settings once more under the names that seed 000's readers know.
void add_seed_keys(const ExperimentOptions& options, Json& record) {
  if (!record.contains("vocab_size")) return;
  Json& config = record["config"];
  config["model_name"] = options.model;
  config["vocab_size"] = record["vocab_size"];
  config["learning_rate"] = options.learning_rate;
  config["sigma"] = options.sigma;
  config["max_grad_norm"] = options.clip_norm;
}

int measure(const ProfileCommand& command, const Options& options, const RankInfo& info) {
  const bool speaks = info.rank == 0;
  const int world = experiment_world(command.experiment, info);
  if (speaks) check_before_work(command, info);
  if (speaks && !command.json) fmt::print("{}\n", options.table());
  RunPlace place;
  place.info = info;
  place.trace_folder = trace_folder(command, world);
  if (speaks && !place.trace_folder.empty()) ensure_folder_writable(place.trace_folder);
  std::FILE* const stages = command.json ? stderr : stdout;  // --json leaves stdout to the record
  place.on_stage = [stages](const Json& line) {
    fmt::print(stages, "{}\n", line.dump());
    std::fflush(stages);
  };
  Progress progress;
  if (is_terminal(stderr)) {
    place.on_progress = [&](const std::string& text, int64_t done, int64_t total) { progress.show(text, done, total); };
  }
  Json record = run_experiment(command.experiment, place);
  progress.clear();
  record["command"] = options.command_line();
  record["config"] = options.json();
  record["config"]["layers"] = layer_count(command.experiment, world);
  add_seed_keys(command.experiment, record);
  // Out of memory on this rank alone: the others wait in a collective and must be ended, once the record is safe.
  if (info.world > 1 && record.contains("oom_rank")) {
    if (!command.output.empty()) write_record(command.output, record);
    throw std::runtime_error("out of memory: " + record.value("message", ""));
  }
  if (!speaks) return kExitDone;
  if (!command.output.empty()) write_record(command.output, record);
  if (command.json) {
    fmt::print("{}\n", record.dump());
  } else {
    print_summary(record);
    for (const auto& trace : record["traces"]) fmt::print("trace: {}\n", trace.get<std::string>());
    if (!command.output.empty()) fmt::print("record: {}\n", command.output);
  }
  return record.value("outcome", "") == "ok" ? kExitDone : kExitFailed;
}

}  // namespace

int run_profile(const std::vector<std::string>& arguments) {
  ProfileCommand command;
  command.output_dir = "traces";
  command.experiment.shapes_do = true;
  Options options("profile", "measures one configuration: time, memory by category, phases, communication");
  add_step_options(options, command.experiment);
  add_private_step_options(options, command.experiment);
  add_measuring_options(options, command.experiment);
  add_experiment_presets(options, /*measuring=*/true);
  bool use_profiler = false;
  options.add("use-profiler", use_profiler,
              {.aliases = {"enable_profiling"}, .help = "the same as --profile phases,kernels,memory"});
  std::string token;
  options.add("token", token,
              {.help = "of the hub: a profile downloads nothing, `veil fetch` does", .secret = true, .value = "TOKEN"});
  options.add("output", command.output, {.help = "write the record here", .value = "FILE"});
  options.add("output-dir", command.output_dir,
              {.aliases = {"logdir"}, .help = "folder of traces, one folder a configuration in it", .value = "DIR"});
  options.add("json", command.json, {.help = "print the record instead of tables"});
  if (!options.parse(arguments)) return kExitDone;
  if (const char* watched = std::getenv("VEIL_PROFILE"); watched && *watched && !options.given("profile")) {
    std::vector<std::string> again = arguments;
    again.insert(again.end(), {"--profile", watched});
    return run_profile(again);
  }
  if (use_profiler) command.experiment.profile = {ProfileKind::phases, ProfileKind::kernels, ProfileKind::memory};
  use_language_defaults(options, command.experiment);
  check_options(command.experiment);

  const RankInfo info = rank_info_from_environment();
  if (info.launcher == Launcher::none && command.experiment.ranks.value_or(1) > 1) {
    RankInfo planned = info;
    planned.world = planned.local_world = *command.experiment.ranks;
    check_before_work(command, planned);
    std::vector<std::string> words{"profile"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return launch_local_ranks(*command.experiment.ranks, words);
  }
  ledger::install();
  if (info.world == 1 && info.launcher == Launcher::none) return measure(command, options, info);
  World world(info);
  try {
    return measure(command, options, info);
  } catch (const UserError& error) {
    world.fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(error.what(), kExitFailed);
  }
}

}  // namespace veil
