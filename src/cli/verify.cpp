// veil verify: is a private step what DP-SGD says it is, whatever the mode, strategy and number of
// ranks?
#include "verify/verify.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "record/fields.h"
#include "run/machine.h"
#include "run/ranks.h"

namespace veil {
namespace {

struct VerifyCommand {
  VerifyOptions verify;
  std::vector<int> ranks = {1};
  std::string output, rows;
  bool json = false, verbose = false, use_fsdp = false, overwrite = false;
};

void add_verify_options(Options& options, VerifyCommand& c) {
  RunConfig& e = c.verify.config;
  e.model.name = "";
  e.model.seq_length = 32;
  e.model.input_size = 48;
  e.step.batch_size = 2;
  e.step.accumulation = 2;
  e.privacy.clip_norm = 0;  // the median of the samples' norms
  c.verify.modes = {Mode::no_dp,      Mode::automatic,   Mode::ghost,
                    Mode::flash,      Mode::bookkeeping, Mode::flash_clip_bookkeeping,
                    Mode::materialize};
  c.verify.strategies = {Strategy::ddp, Strategy::zero2, Strategy::zero3};
  add_step_options(options, e, /*searched=*/true);
  add_batch_option(options, e);
  options.section("what is verified");
  options.add(
      "strategy", c.verify.strategies,
      {.aliases = {"data_parallel"},
       .help =
           "how parameters, gradients and optimizer state are sharded over the ranks; several"});
  options.add("use-fsdp", c.use_fsdp, {.help = "the same as --strategy zero3"});
  options.add("mode", c.verify.modes,
              {.help = "how per-sample norms are found and used; several. ghost_fsdp and "
                       "flash_fsdp are ghost and flash "
                       "under zero3"});
  add_clip_part_options(options, e.privacy.method);
  options.refuse({"memory-budget"}, "nothing here is large; pass --mode, --rule or --pass-plan");
  add_clip_function_options(options, e.privacy, "clip", /*or_max_grad_norm=*/false);
  options.defaults("clip-norm", {{"0: the median of the samples' norms"}});
  options.add("rng", c.verify.generators,
              {.help = "generators whose noise is checked; several allowed"});
  add_running_options(options, e, /*several_worlds=*/true);
  options.add("ranks", c.ranks,
              {.aliases = {"nproc_per_node", "num_gpus"},
               .help = "local ranks to start, several worlds one after another; those of mpirun, "
                       "srun or torchrun otherwise",
               .minimum = 1,
               .maximum = 4096});
  options.section("output");
  options.add(
      "verbose", c.verbose,
      {.help = "every norm by rank, sample and layer, before and after clipping; not private"});
  options.add(
      "profile", c.verify.phases,
      {.aliases = {"enable_profiling", "use_profiler"}, .help = "time each row's step by phase"});
  options.add("json", c.json, {.help = "print the record instead of tables"});
  options.add("output", c.output, {.help = "write the record here", .value = "FILE"});
  add_overwrite_option(options, c.overwrite);
  options.add("rows", c.rows,
              {.help = "write the rows here and print nothing: how the ranks that this command "
                       "starts answer it",
               .value = "FILE"});
  options.refuse({"simulate-world", "simulate-rank", "link"},
                 "a simulated world has no peers, so nothing could be verified; pass --ranks N");
  options.refuse({"storage", "reduce"},
                 "--dtype decides it: what is stored is what the reference reads");
  options.refuse({"optimizer", "moments", "learning-rate", "momentum", "weight-decay"},
                 "gradients are verified before any optimizer; noise by steps of plain sgd");
}

void settle(VerifyCommand& c) {
  RunConfig& e = c.verify.config;
  if (e.step.compute == Precision::fp16)
    user_error("--dtype fp16: allowed are fp64, fp32 and bf16");
  e.step.storage = e.step.compute;
  e.step.reduce = e.step.compute == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  if (*e.privacy.clip_norm < 0)
    user_error("--clip-norm {}: allowed is 0 or more", *e.privacy.clip_norm);
  if (c.use_fsdp) c.verify.strategies = {Strategy::zero3};
  c.verify.norms = c.verbose;
  for (const Mode mode : c.verify.modes) {
    if (mode != Mode::no_dp &&
        c.verify.config.privacy.method.pass == privacy::PassKind::per_layer &&
        c.verify.config.privacy.clip != privacy::ClipFunction::per_layer)
      user_error(
          "--pass-plan per-layer: it goes with --clip per-layer, for other coefficients need all "
          "layers' norms");
  }
}

std::string scientific(std::optional<double> value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}

std::string on_ranks(int64_t world) {
  return world == 1 ? "on one rank" : fmt::format("on {} ranks", world);
}

std::string shown_verdict(const std::string& verdict) {
  return verdict == kPass ? verdict : colored(stdout, Color::red, verdict);
}

void print_norms(const VerifyRow& row) {
  fmt::print("\n{} {} {} {} {}: norms, not private\n", row.model, row.task, row.mode, row.strategy,
             on_ranks(row.world));
  Table table({"rank", "sample", "layer", "before clipping", "after"});
  for (const VerifyNorm& norm : *row.norms)
    table.row({std::to_string(norm.rank), std::to_string(norm.sample),
               norm.layer + (norm.counts.value_or(true) ? "" : " (padding: does not count)"),
               fmt::format("{:.6g}", norm.before), fmt::format("{:.6g}", norm.after)});
  fmt::print("{}", table.text());
}

void print_rows(const VerifyRecord& found) {
  Table table({"model", "task", "mode", "plan", "strategy", "W", "gradient", "norm*",
               "coefficient*", "sum of clipped norms*", "verdict"});
  for (const VerifyRow& row : found.rows)
    table.row({row.model, row.task, row.mode,
               row.is_private() ? row.pass_plan + " " + join(*row.rules, "+") : "-", row.strategy,
               std::to_string(row.world), scientific(row.max_grad_diff),
               scientific(row.max_norm_diff), scientific(row.max_coefficient_diff),
               row.sum_clipped_norms ? fmt::format("{:.6g}", *row.sum_clipped_norms) : "-",
               shown_verdict(row.verdict)});
  fmt::print(
      "{}* not private: for samples that may be shown. Differences are relative to the largest "
      "value of the "
      "fp64 reference.\n",
      table.text());
}

void print_noise(const VerifyRecord& found) {
  Table table({"model", "task", "strategy", "W", "batch", "rng", "draws", "mean z", "variance z",
               "KS", "shards z", "steps z", "bits", "with samples", "verdict"});
  for (const VerifyNoiseRow& row : found.noise) {
    const auto fixed = [](double value) { return fmt::format("{:.2f}", value); };
    table.row({row.model, row.task, row.strategy, std::to_string(row.world), row.batch, row.rng,
               std::to_string(row.draws), fixed(row.mean_z), fixed(row.variance_z),
               fixed(row.kolmogorov), fixed(row.between_shards_z), fixed(row.between_steps_z),
               row.bits_are_the_generators ? "equal" : "DIFFER",
               scientific(row.difference_with_samples), shown_verdict(row.verdict)});
  }
  fmt::print("\nnoise, as it arrives in the parameters\n{}", table.text());
}

void print_failures(const VerifyRecord& found) {
  for (const VerifyRow& row : found.rows) {
    if (!row.failure) continue;
    const VerifyMismatch& failure = *row.failure;
    fmt::print("{} {} {} {} {} {}: {}{} on rank {}{}; likely cause: {}\n",
               colored(stdout, Color::red, "FAIL"), row.model, row.task, row.mode, row.strategy,
               on_ranks(row.world), failure.what,
               failure.parameter.empty() ? "" : " of " + failure.parameter, failure.rank,
               failure.sample ? fmt::format(", sample {}", *failure.sample) : "",
               failure.likely_cause);
  }
  for (const VerifyNoiseRow& row : found.noise) {
    for (const std::string& failure : row.failures)
      fmt::print("{} {} {} noise {} {}, {} batch: {}\n", colored(stdout, Color::red, "FAIL"),
                 row.model, row.task, row.strategy, on_ranks(row.world), row.batch, failure);
  }
}

void print_phases(const VerifyRecord& found) {
  std::vector<std::string> phases;
  for (const VerifyRow& row : found.rows) {
    for (const auto& [phase, unused] : row.phases_ms) {
      if (std::find(phases.begin(), phases.end(), phase) == phases.end()) phases.push_back(phase);
    }
  }
  std::vector<std::string> header = {"model", "mode", "strategy", "W"};
  header.insert(header.end(), phases.begin(), phases.end());
  Table table(header);
  for (const VerifyRow& row : found.rows) {
    std::vector<std::string> cells = {row.model, row.mode, row.strategy, std::to_string(row.world)};
    for (const std::string& phase : phases) {
      const auto is_it = [&](const auto& entry) { return entry.first == phase; };
      const auto entry = std::find_if(row.phases_ms.begin(), row.phases_ms.end(), is_it);
      cells.push_back(entry == row.phases_ms.end() ? "-" : fmt::format("{:.2f}", entry->second));
    }
    table.row(cells);
  }
  fmt::print("\nmilliseconds a step, by phase\n{}", table.text());
}

int64_t failed_rows(const VerifyRecord& found) {
  const auto failed = [](const auto& row) { return row.verdict != kPass; };
  return std::count_if(found.rows.begin(), found.rows.end(), failed) +
         std::count_if(found.noise.begin(), found.noise.end(), failed);
}

// What all worlds found, judged and shown.
int conclude(const VerifyCommand& c, const Options& options, VerifyRecord found) {
  judge_verify(found);
  found.command = options.command_line();
  found.config = options.json();
  found.build = build_json();
  found.tolerance = verify_tolerance(dtype_of(c.verify.config.step.compute));
  const bool passed = found.verdict == kPass;
  if (!c.output.empty()) write_file_atomically(c.output, to_json(found).dump(1) + "\n");
  if (c.json) {
    fmt::print("{}\n", to_json(found).dump());
    return passed ? kExitDone : kExitFailed;
  }
  if (c.verbose) {
    for (const VerifyRow& row : found.rows) {
      if (row.norms) print_norms(row);
    }
    fmt::print("\n");
  }
  print_rows(found);
  print_noise(found);
  if (c.verify.phases) print_phases(found);
  fmt::print("\n");
  print_failures(found);
  const int64_t rows = static_cast<int64_t>(found.rows.size() + found.noise.size()),
                failed = failed_rows(found);
  fmt::print("{} of {} rows pass at {} (tolerance {:.0e})\n", rows - failed, rows,
             name_of(c.verify.config.step.compute),
             verify_tolerance(dtype_of(c.verify.config.step.compute)));
  return passed ? kExitDone : kExitFailed;
}

VerifyRecord run_here(const VerifyCommand& c, const RankInfo& info) {
  Progress progress;
  VerifyPlace place{.info = info, .on_progress = {}};
  if (is_terminal(stderr))
    place.on_progress = [&](const std::string& text, int64_t done, int64_t total) {
      progress.show(text, done, total);
    };
  return run_verify(c.verify, place);
}

// On ranks of its own, whose first one leaves the rows in a file.
int run_on_ranks(int ranks, const Options& options, const VerifyCommand& c, VerifyRecord& found) {
  namespace fs = std::filesystem;
  RankInfo planned;
  planned.world = planned.local_world = ranks;
  choose_device(c.verify.config, planned);  // what cannot be is told once
  const fs::path file =
      fs::temp_directory_path() / fmt::format("veil_verify_{}_{}.json", getpid(), ranks);
  RankStart start{ranks, {"verify"}};
  for (const std::string& word : options.passed_on({}, {"ranks", "rows", "json", "output"}))
    start.words.push_back(word);
  start.words.insert(start.words.end(),
                     {"--ranks", std::to_string(ranks), "--rows", file.string()});
  const int code = on_ranks({}, start, {});
  if (code == kExitDone) found = verify_record_from_json(parse_object(read_file(file.string())));
  fs::remove(file);
  return code;
}

int run_as_rank(const VerifyCommand& c, const Options& options, const RankInfo& info) {
  VerifyRecord found = run_here(c, info);
  if (info.rank != 0) return kExitDone;
  if (c.rows.empty()) return conclude(c, options, found);
  write_file_atomically(c.rows, to_json(found).dump());
  return kExitDone;
}

}  // namespace

int run_verify_command(const CommandCall& call) {
  VerifyCommand c;
  Options options("verify",
                  "holds private steps against one sample at a time in fp64: gradients, norms, "
                  "coefficients, noise");
  add_verify_options(options, c);
  if (!options.parse_call(call)) return kExitDone;
  settle(c);
  // a name that nobody knows, before any work
  std::vector<std::string> weights;
  for (const VerifyModel& model : verify_models(c.verify)) {
    RunConfig e = c.verify.config;
    e.model.name = model.name;
    e.model.task = model.task;
    const ModelSource source = model_source(e);
    const std::string from =
        source.has_weights() ? "from " + source.folder : weights_text(source, {});
    if (std::find(weights.begin(), weights.end(), from) == weights.end()) weights.push_back(from);
  }
  if (!c.output.empty()) check_output_file(c.output, c.overwrite);
  if (!c.rows.empty()) check_output_file(c.rows, c.overwrite);

  const RankInfo info = rank_info_from_environment();
  if (info.launcher != Launcher::none) {
    if (options.given("ranks") && c.ranks != std::vector<int>{info.world})
      user_error("--ranks: the launcher has started {} ranks; leave --ranks out", info.world);
    return on_ranks(info, {}, [&] { return run_as_rank(c, options, info); });
  }
  if (!c.json && c.rows.empty())
    fmt::print(
        "{}  all other settings are the defaults; --output FILE records every one\n\n"
        "weights   {}\n\n",
        options.short_table({"mode", "strategy", "ranks"}), join(weights, "; "));
  VerifyRecord all;
  for (const int ranks : c.ranks) {
    VerifyRecord found;
    if (ranks == 1) {
      found = run_here(c, info);
    } else if (const int code = run_on_ranks(ranks, options, c, found); code != kExitDone) {
      return code;
    }
    all.rows.insert(all.rows.end(), found.rows.begin(), found.rows.end());
    all.noise.insert(all.noise.end(), found.noise.begin(), found.noise.end());
  }
  return conclude(c, options, all);
}

}  // namespace veil
