// veil verify: is a private step what DP-SGD says it is, whatever the mode, strategy and number of ranks?
#include "suite/verify.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/clip_options.h"
#include "cli/command.h"
#include "cli/experiment_options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "suite/machine.h"
#include "suite/profile_run.h"

namespace veil {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyCommand {
  VerifyOptions verify;
  std::vector<int> ranks = {1};
  std::string output, rows;
  bool json = false, verbose = false, use_fsdp = false;
};

void add_verify_options(Options& options, VerifyCommand& c) {
  ExperimentOptions& e = c.verify.experiment;
  e.model = "";
  e.seq_length = 32;
  e.input_size = 48;
  e.batch_size = 2;
  e.accumulation = 2;
  c.verify.modes = {Mode::no_dp,      Mode::automatic,   Mode::ghost,
                    Mode::flash,      Mode::bookkeeping, Mode::flash_clip_bookkeeping,
                    Mode::materialize};
  c.verify.strategies = {Strategy::ddp, Strategy::zero2, Strategy::zero3};
  add_step_options(options, e, /*searched=*/true);
  options.add("batch-size", e.batch_size, {.help = "samples a rank and micro-batch", .minimum = 1});
  options.add(
      "strategy", c.verify.strategies,
      {.aliases = {"data_parallel"}, .help = "how parameters, gradients and optimizer state are spread; several"});
  options.add("use-fsdp", c.use_fsdp, {.help = "the same as --strategy zero3"});
  options.add(
      "mode", c.verify.modes,
      {.help = "how per-sample norms are found and used; several. ghost_fsdp and flash_fsdp are ghost and flash "
               "under zero3"});
  add_clip_part_options(options, c.verify.parts);
  options.refuse({"memory-budget"}, "nothing here is large; pass --mode, --rule or --pass-plan");
  options.add("clip", c.verify.clip,
              {.aliases = {"clip_function", "clipping"},
               .help = "min(1, C / norm), C / norm, one C a layer; adaptive is verified at one C"});
  options.add(
      "clip-norm", c.verify.clip_norm,
      {.help = "C; 0 takes the median of the samples' norms, so that some are clipped and some are not", .minimum = 0});
  options.add("rng", c.verify.generators, {.help = "whose noise is checked; several"});
  add_running_options(options, e, /*several_worlds=*/true);
  options.add(
      "ranks", c.ranks,
      {.aliases = {"nproc_per_node", "num_gpus"},
       .help = "local ranks to start, several worlds one after another; those of mpirun, srun or torchrun otherwise",
       .minimum = 1,
       .maximum = 4096});
  options.add("verbose", c.verbose,
              {.help = "every norm by rank, sample and layer, before and after clipping; not private"});
  options.add("profile", c.verify.phases,
              {.aliases = {"enable_profiling", "use_profiler"}, .help = "time each row's step by phase"});
  options.add("json", c.json, {.help = "print the record instead of tables"});
  options.add("output", c.output, {.help = "write the record here", .value = "FILE"});
  options.add("rows", c.rows,
              {.help = "write the rows here and print nothing: how the ranks that this command starts answer it",
               .value = "FILE"});
  options.refuse({"simulate-world", "simulate-rank", "link"},
                 "a simulated world has no peers, so nothing could be verified; pass --ranks N");
  options.refuse({"storage", "reduce"}, "--dtype decides it: what is stored is what the reference reads");
  options.refuse({"optimizer", "moments", "learning-rate", "momentum", "weight-decay"},
                 "gradients are verified before any optimizer; noise by steps of plain sgd");
}

void settle(VerifyCommand& c) {
  ExperimentOptions& e = c.verify.experiment;
  if (e.compute == Precision::fp16) user_error("--dtype fp16: allowed are fp64, fp32 and bf16");
  e.storage = e.compute;
  e.reduce = e.compute == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  if (c.use_fsdp) c.verify.strategies = {Strategy::zero3};
  c.verify.norms = c.verbose;
  for (const Mode mode : c.verify.modes) {
    if (mode != Mode::no_dp && c.verify.parts.pass == privacy::PassPlan::per_layer &&
        c.verify.clip != privacy::ClipFunction::per_layer)
      user_error("--pass-plan per-layer: it goes with --clip per-layer, for other coefficients need all layers' norms");
  }
}

std::string scientific(const Json& value) {
  return value.is_number() ? fmt::format("{:.1e}", value.get<double>()) : "-";
}

std::string on_ranks(const Json& row) {
  const int world = row.value("world", 1);
  return world == 1 ? "on one rank" : fmt::format("on {} ranks", world);
}

std::string verdict(const Json& row) {
  const std::string text = row.value("verdict", "");
  return text == "pass" ? text : colored(stdout, Color::red, text);
}

void print_norms(const Json& row) {
  fmt::print("\n{} {} {} {} {}: norms, not private\n", row.value("model", ""), row.value("task", ""),
             row.value("mode", ""), row.value("strategy", ""), on_ranks(row));
  Table table({"rank", "sample", "layer", "before clipping", "after"});
  for (const Json& norm : row["norms"]) {
    table.row({std::to_string(norm["rank"].get<int64_t>()), std::to_string(norm["sample"].get<int64_t>()),
               norm.value("layer", "") + (norm.value("counts", true) ? "" : " (padding: does not count)"),
               fmt::format("{:.6g}", norm["before"].get<double>()),
               fmt::format("{:.6g}", norm["after"].get<double>())});
  }
  fmt::print("{}", table.text());
}

void print_rows(const Json& found) {
  Table table({"model", "task", "mode", "plan", "strategy", "W", "gradient", "norm*", "coefficient*",
               "sum of clipped norms*", "verdict"});
  for (const Json& row : found["rows"]) {
    const bool is_private = row.contains("pass_plan");
    std::vector<std::string> rules;
    if (is_private) rules = row["rules"].get<std::vector<std::string>>();
    table.row({row.value("model", ""), row.value("task", ""), row.value("mode", ""),
               is_private ? row.value("pass_plan", "") + " " + join(rules, "+") : "-", row.value("strategy", ""),
               std::to_string(row.value("world", 1)), scientific(row["max_grad_diff"]),
               scientific(row["max_norm_diff"]), scientific(row["max_coefficient_diff"]),
               is_private ? fmt::format("{:.6g}", row["sum_clipped_norms"].get<double>()) : "-", verdict(row)});
  }
  fmt::print(
      "{}* not private: for samples that may be shown. Differences are relative to the largest value of the "
      "fp64 reference.\n",
      table.text());
}

void print_noise(const Json& found) {
  Table table({"model", "task", "strategy", "W", "rng", "draws", "mean z", "variance z", "KS", "shards z", "steps z",
               "bits", "with samples", "verdict"});
  for (const Json& row : found["noise"]) {
    auto fixed = [&](const char* key) { return fmt::format("{:.2f}", row[key].get<double>()); };
    table.row({row.value("model", ""), row.value("task", ""), row.value("strategy", ""),
               std::to_string(row.value("world", 1)), row.value("rng", ""), std::to_string(row["draws"].get<int64_t>()),
               fixed("mean_z"), fixed("variance_z"), fixed("kolmogorov"), fixed("between_shards_z"),
               fixed("between_steps_z"), row["bits_are_the_generators"].get<bool>() ? "equal" : "DIFFER",
               scientific(row["difference_with_samples"]), verdict(row)});
  }
  fmt::print("\nnoise, as it arrives in the parameters\n{}", table.text());
}

void print_failures(const Json& found) {
  for (const Json& row : found["rows"]) {
    if (!row.contains("failure")) continue;
    const Json& failure = row["failure"];
    const std::string parameter = failure.value("parameter", ""),
                      where = fmt::format("rank {}", failure.value("rank", 0));
    fmt::print("{} {} {} {} {} {}: {}{} on {}{}; likely cause: {}\n", colored(stdout, Color::red, "FAIL"),
               row.value("model", ""), row.value("task", ""), row.value("mode", ""), row.value("strategy", ""),
               on_ranks(row), failure.value("what", ""), parameter.empty() ? "" : " of " + parameter, where,
               failure.contains("sample") ? fmt::format(", sample {}", failure["sample"].get<int64_t>()) : "",
               failure.value("likely_cause", ""));
  }
  for (const Json& row : found["noise"]) {
    for (const Json& failure : row["failures"])
      fmt::print("{} {} {} noise {} {}: {}\n", colored(stdout, Color::red, "FAIL"), row.value("model", ""),
                 row.value("task", ""), row.value("strategy", ""), on_ranks(row), failure.get<std::string>());
  }
}

void print_phases(const Json& found) {
  std::vector<std::string> phases;
  for (const Json& row : found["rows"]) {
    for (const auto& [phase, unused] : row["phases_ms"].items()) {
      if (std::find(phases.begin(), phases.end(), phase) == phases.end()) phases.push_back(phase);
    }
  }
  std::vector<std::string> header = {"model", "mode", "strategy", "W"};
  header.insert(header.end(), phases.begin(), phases.end());
  Table table(header);
  for (const Json& row : found["rows"]) {
    std::vector<std::string> cells = {row.value("model", ""), row.value("mode", ""), row.value("strategy", ""),
                                      std::to_string(row.value("world", 1))};
    for (const std::string& phase : phases)
      cells.push_back(row["phases_ms"].contains(phase) ? fmt::format("{:.2f}", row["phases_ms"][phase].get<double>())
                                                       : "-");
    table.row(cells);
  }
  fmt::print("\nmilliseconds a step, by phase\n{}", table.text());
}

int64_t failed_rows(const Json& found) {
  int64_t failed = 0;
  for (const char* list : {"rows", "noise"}) {
    for (const Json& row : found[list]) failed += row.value("verdict", "") != "pass";
  }
  return failed;
}

// What all worlds found, judged and shown.
int conclude(const VerifyCommand& c, const Options& options, Json found) {
  const bool passed = judge_verify(found);
  Json record = {{"schema", 1},
                 {"command", options.command_line()},
                 {"config", options.json()},
                 {"build", build_json()},
                 {"tolerance", verify_tolerance(dtype_of(c.verify.experiment.compute))},
                 {"verdict", passed ? "pass" : "FAIL"}};
  record.update(found);
  if (!c.output.empty()) write_file_atomically(c.output, record.dump(1) + "\n");
  if (c.json) {
    fmt::print("{}\n", record.dump());
    return passed ? kExitDone : kExitFailed;
  }
  if (c.verbose) {
    for (const Json& row : found["rows"]) {
      if (row.contains("norms")) print_norms(row);
    }
    fmt::print("\n");
  }
  print_rows(found);
  print_noise(found);
  if (c.verify.phases) print_phases(found);
  fmt::print("\n");
  print_failures(found);
  const int64_t rows = static_cast<int64_t>(found["rows"].size() + found["noise"].size()), failed = failed_rows(found);
  fmt::print("{} of {} rows pass at {} (tolerance {:.0e})\n", rows - failed, rows, name_of(c.verify.experiment.compute),
             verify_tolerance(dtype_of(c.verify.experiment.compute)));
  return passed ? kExitDone : kExitFailed;
}

Json run_here(const VerifyCommand& c, const RankInfo& info) {
  Progress progress;
  VerifyPlace place{.info = info, .on_progress = {}};
  if (is_terminal(stderr))
    place.on_progress = [&](const std::string& text, int64_t done, int64_t total) { progress.show(text, done, total); };
  return run_verify(c.verify, place);
}

// On ranks of its own, whose first one leaves the rows in a file.
int run_on_ranks(int ranks, const Options& options, const VerifyCommand& c, Json& found) {
  namespace fs = std::filesystem;
  RankInfo planned;
  planned.world = planned.local_world = ranks;
  choose_device(c.verify.experiment, planned);  // what cannot be is told once
  const fs::path file = fs::temp_directory_path() / fmt::format("veil_verify_{}_{}.json", getpid(), ranks);
  std::vector<std::string> words{"verify"};
  for (const std::string& word : options.passed_on({}, {"ranks", "rows", "json", "output"})) words.push_back(word);
  words.insert(words.end(), {"--ranks", std::to_string(ranks), "--rows", file.string()});
  const int code = launch_local_ranks(ranks, words);
  if (code == kExitDone) found = Json::parse(read_file(file.string()));
  fs::remove(file);
  return code;
}

int run_as_rank(const VerifyCommand& c, const Options& options, const RankInfo& info) {
  Json found = run_here(c, info);
  if (info.rank != 0) return kExitDone;
  if (c.rows.empty()) return conclude(c, options, found);
  write_file_atomically(c.rows, found.dump());
  return kExitDone;
}

}  // namespace

int run_verify_command(const std::vector<std::string>& arguments) {
  VerifyCommand c;
  Options options("verify",
                  "holds private steps against one sample at a time in fp64: gradients, norms, coefficients, noise");
  add_verify_options(options, c);
  if (!options.parse(arguments)) return kExitDone;
  settle(c);
  for (const VerifyModel& model : verify_models(c.verify)) {  // a name that nobody knows, before any work
    ExperimentOptions e = c.verify.experiment;
    e.model = model.name;
    e.task = model.task;
    model_source(e);
  }
  if (!c.output.empty()) check_file_can_be_written(c.output);

  const RankInfo info = rank_info_from_environment();
  if (info.launcher != Launcher::none) {
    if (options.given("ranks") && c.ranks != std::vector<int>{info.world})
      user_error("--ranks: the launcher has started {} ranks; leave --ranks out", info.world);
    World world(info);
    try {
      return run_as_rank(c, options, info);
    } catch (const UserError& error) {
      world.fail(error.what(), error.exit_code());
    } catch (const std::exception& error) {
      world.fail(error.what(), kExitFailed);
    }
  }
  if (!c.json && c.rows.empty()) fmt::print("{}\n", options.table());
  Json all = {{"rows", Json::array()}, {"noise", Json::array()}};
  for (const int ranks : c.ranks) {
    Json found;
    if (ranks == 1) {
      found = run_here(c, info);
    } else if (const int code = run_on_ranks(ranks, options, c, found); code != kExitDone) {
      return code;
    }
    for (const char* list : {"rows", "noise"}) {
      for (Json& row : found[list]) all[list].push_back(row);
    }
  }
  return conclude(c, options, all);
}

}  // namespace veil
