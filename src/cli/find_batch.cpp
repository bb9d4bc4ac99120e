// veil find-batch: the largest batch that fits, predicted, then confirmed by two runs of `veil
// profile`, each in a process of its own.
#include <algorithm>
#include <map>

#include "base/files.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "base/table.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/terminal.h"
#include "estimate/estimator.h"
#include "record/batch_search.h"
#include "run/machine.h"
#include "run/ranks.h"
#include "run/remedies.h"
#include "suite/sweep.h"

namespace veil {
namespace {

struct FindBatchCommand {
  RunConfig config;
  std::vector<std::string> strategies;
  int64_t max_batch = 65536;
  std::string memory_limit, output_dir = "batch_sizes";
  bool json = false, overwrite = false;
};

void add_options(Options& options, FindBatchCommand& c) {
  options.add("strategies", c.strategies,
              {.aliases = {"strategy", "data_parallel"},
               .help = "ddp, zero2, zero3, several of them, or all; zero3 if not given",
               .value = "NAME"});
  options.add("max-batch", c.max_batch,
              {.aliases = {"max_batch_size"},
               .help = "largest batch to try",
               .minimum = 1,
               .maximum = 1 << 30});
  options.add("memory-limit", c.memory_limit,
              {.help = "memory limit per rank, for example 24GiB; by default the GPU's memory, or "
                       "on a CPU four fifths of the host's, shared by the ranks",
               .value = "BYTES"});
  options.add(
      "output-dir", c.output_dir,
      {.help = "folder of max_batch_sizes.txt, max_batch_sizes.json and the trials' records",
       .value = "DIR"});
  add_overwrite_option(options, c.overwrite);
  options.add("json", c.json, {.help = "print max_batch_sizes.json instead of the table"});
}

std::vector<Strategy> chosen_strategies(const std::vector<std::string>& words) {
  std::vector<Strategy> chosen;
  auto add = [&](Strategy strategy) {
    if (std::find(chosen.begin(), chosen.end(), strategy) == chosen.end())
      chosen.push_back(strategy);
  };
  for (const std::string& word : words) {
    Strategy strategy{};
    if (canonical(word) == "all") {
      for (const auto& entry : names(Strategy{})) add(entry.value);
    } else if (find_name(word, strategy)) {
      add(strategy);
    } else {
      user_error("--strategy {}: allowed are {} and all", word, join(all_names<Strategy>(), ", "));
    }
  }
  if (chosen.empty()) chosen.push_back(Strategy::zero3);
  return chosen;
}

// The trials' words: every setting as it was resolved here, so that no default is decided twice.
std::vector<std::string> trial_words(const RunConfig& experiment) {
  RunConfig copy = experiment;
  Options options("", "");
  add_step_options(options, copy, /*searched=*/true);
  add_private_step_options(options, copy);
  add_running_options(options, copy);
  std::vector<std::string> words;
  const nlohmann::json settings = options.json();
  for (const auto& [name, value] : settings.items()) {
    if (value.is_null() || value == "" || name == "config") continue;
    if (value.is_boolean()) {
      if (value.get<bool>()) words.push_back("--" + name);
    } else {
      const auto text = [](const nlohmann::json& one) {
        return one.is_string() ? one.get<std::string>() : one.dump();
      };
      std::vector<std::string> parts;
      for (const auto& part : value) parts.push_back(text(part));  // a single value has one
      if (!parts.empty()) words.push_back(fmt::format("--{}={}", name, join(parts, ",")));
    }
  }
  words.insert(words.end(), {"--warmup=1", "--iterations=1", "--profile=none"});
  return words;
}

// A batch size that was tried, and what its run said.
struct Trial : BatchTrial {
  double tokens_per_second = 0;
};

class Search {
 public:
  Search(const FindBatchCommand& command, Strategy strategy, int world, bool on_gpu, int64_t limit)
      : c_(command), experiment_(command.config), world_(world), on_gpu_(on_gpu), limit_(limit) {
    experiment_.step.strategy = strategy;
    source_ = model_source(experiment_);
    words_ = trial_words(experiment_);
    prices_ = step_prices(experiment_, on_gpu_);
  }

  LargestBatch run(const std::function<void(const Trial&)>& on_trial) {
    const auto estimated = [&](int64_t batch) { return estimate(batch); };
    predicted_ = largest_batch(c_.max_batch, [&](int64_t batch) {
                   return estimate(batch) <= limit_;
                 }).largest;
    const LargestBatch found = confirmed_batch(c_.max_batch, limit_, estimated, [&](int64_t batch) {
      trials_.push_back(attempt(batch));
      on_trial(trials_.back());
      return BatchRun{trials_.back().fits, trials_.back().peak_memory_bytes};
    });
    if (found.too_large > 0 && !trial(found.too_large))
      trials_.push_back({{found.too_large, false, "estimate", estimate(found.too_large)}});
    return found;
  }

  int64_t predicted() const { return predicted_; }
  const std::vector<Trial>& trials() const { return trials_; }
  // Of a batch of 1 that does not fit.
  std::vector<std::string> remedies() const {
    RunConfig one = experiment_;
    one.step.batch_size = 1;
    return remedy_texts(priced_remedies(one, world_, on_gpu_, limit_));
  }
  const Trial* trial(int64_t batch) const {
    for (const Trial& trial : trials_) {
      if (trial.batch_size == batch) return &trial;
    }
    return nullptr;
  }

 private:
  // The estimator's bytes; the searches ask for some batches again.
  int64_t estimate(int64_t batch) {
    const auto [known, is_new] = estimates_.try_emplace(batch);
    if (is_new) known->second = estimated_bytes(batch);
    return known->second;
  }

  int64_t estimated_bytes(int64_t batch) const {
    StepOptions step = step_options(experiment_, world_, on_gpu_);
    const Model model = make_model(experiment_, source_, world_);
    const ModelShape shape = model.shape(batch, step.compute, on_gpu_);
    const PrivacyConfig& privacy = experiment_.privacy;
    if (privacy.is_private())
      step.clip = clip_method(privacy.method, shape, step, privacy.by_layer(), prices_);
    const MemoryEstimate estimate = estimate_memory(build_schedule(shape, step));
    return estimate.peak(on_gpu_ ? Space::device : Space::host).total();
  }

  Trial attempt(int64_t batch) {
    Trial trial;
    trial.batch_size = batch;
    experiment_.step.batch_size = batch;
    const Record record = measure(batch);
    trial.by = "run";
    if (record.outcome == "oom") return trial;
    double peak = *record.peak_memory_bytes;
    for (const RecordRank& rank : record.ranks)
      peak = std::max(peak, rank.peak_memory_bytes.value_or(0));
    trial.peak_memory_bytes = static_cast<int64_t>(peak);
    trial.tokens_per_second = record.tokens_per_second.value_or(0);
    trial.fits = trial.peak_memory_bytes <= limit_;
    if (!trial.fits) trial.by = "limit";
    return trial;
  }

  // The record of a real run; what fails for another reason than memory ends the search.
  Record measure(int64_t batch) const {
    const std::string strategy = name_of(experiment_.step.strategy);
    Experiment trial{fmt::format("{}_b{}", strategy, batch),
                     fmt::format("{}, batch {}", strategy, batch), words_};
    trial.arguments.push_back("--strategy=" + strategy);
    trial.arguments.push_back(fmt::format("--batch-size={}", batch));
    SweepOptions sweep;
    sweep.folder = join_path(c_.output_dir, "trials");
    sweep.suite = "find-batch";
    const SweepResult result =
        run_sweep({trial}, sweep, [](int, const Experiment&, const Record*) {});
    if (result.failed) {
      throw UserError(fmt::format("{} failed, not for want of memory: {}", trial.title,
                                  result.records[0].message),
                      kExitFailed);
    }
    return result.records[0];
  }

  const FindBatchCommand& c_;
  RunConfig experiment_;
  ModelSource source_;
  int world_;
  bool on_gpu_;
  int64_t limit_;
  int64_t predicted_ = 0;  // the largest batch by the estimator
  std::vector<std::string> words_;
  StepPrices prices_;
  std::map<int64_t, int64_t> estimates_;
  std::vector<Trial> trials_;
};

int64_t memory_limit(const FindBatchCommand& c, const RankInfo& planned, Device device) {
  if (!c.memory_limit.empty()) {
    const int64_t limit = parse_bytes(c.memory_limit, "--memory-limit");
    if (limit < 1) user_error("--memory-limit {}: at least one byte is needed", c.memory_limit);
    return limit;
  }
  if (device.is_cuda()) return gpus().at(static_cast<size_t>(device.index())).memory_bytes;
  return this_machine().memory_bytes / 5 * 4 / planned.local_world;
}

StrategyBatch summary(const Search& search, const LargestBatch& found, Strategy strategy, int world,
                      int accumulation) {
  StrategyBatch result{.strategy = name_of(strategy),
                       .max_batch_size = found.largest,
                       .max_total_batch_size = found.largest * world * accumulation};
  if (const Trial* best = search.trial(found.largest)) {
    result.peak_memory_bytes = best->peak_memory_bytes;
    result.tokens_per_second = best->tokens_per_second;
  }
  if (const Trial* beyond = search.trial(found.too_large)) {
    result.too_large = *beyond;
    if (found.largest == 0) result.remedies = search.remedies();
  }
  for (const Trial& trial : search.trials()) result.trials.push_back(trial);
  return result;
}

std::string why_too_large(const StrategyBatch& found) {
  if (!found.too_large) return "none: --max-batch fits";
  const BatchTrial& trial = *found.too_large;
  const std::string bytes = format_bytes(trial.peak_memory_bytes);
  const std::string how = trial.by == "run"     ? "ran out of memory"
                          : trial.by == "limit" ? "took " + bytes
                                                : "estimated at " + bytes;
  return fmt::format("{} {}", trial.batch_size, how);
}

// "strategy batch" lines under a heading.
std::string batch_sizes_text(const BatchSearch& result) {
  std::string text = fmt::format(
      "# largest batch per rank: {}, sequences of {}, {}, {} per rank allowed\n", result.model,
      result.seq_length, quantity(result.world, "rank"), format_bytes(result.memory_limit_bytes));
  for (const StrategyBatch& found : result.strategies)
    text += fmt::format("{} {}\n", found.strategy, found.max_batch_size);
  return text;
}

void print_result(const BatchSearch& result) {
  Table table({"strategy", "largest batch", "peak memory", "tokens/s", "too large"});
  for (const StrategyBatch& found : result.strategies) {
    const double tokens = found.tokens_per_second.value_or(0);
    const int64_t largest = found.max_batch_size;
    table.row({found.strategy, largest ? std::to_string(largest) : "-",
               largest ? format_bytes(found.peak_memory_bytes.value_or(0)) : "-",
               tokens > 0 ? format_count(tokens) : "-", why_too_large(found)});
  }
  fmt::print("\n{}", table.text());
  for (const StrategyBatch& found : result.strategies) {
    if (!found.remedies) continue;
    fmt::print("\n{}: not even a batch of 1 fits in {}\n", found.strategy,
               format_bytes(result.memory_limit_bytes));
    for (const std::string& remedy : *found.remedies) fmt::print("  try {}\n", remedy);
  }
}

}  // namespace

int run_find_batch(const CommandCall& call) {
  FindBatchCommand command;
  Options options("find-batch",
                  "finds the largest batch that fits, by trials in processes of their own");
  add_options(options, command);
  add_step_options(options, command.config, /*searched=*/true);
  add_private_step_options(options, command.config);
  add_running_options(options, command.config);
  show_defaults(options, command.config, measuring_defaults());
  if (!options.parse_call(call)) return kExitDone;
  use_model_defaults(options, command.config);
  check_config(command.config);
  const std::vector<Strategy> strategies = chosen_strategies(command.strategies);
  RankInfo planned;
  planned.local_world = planned.world = command.config.placement.ranks.value_or(1);
  const Device device = choose_device(command.config, planned);
  const int world = experiment_world(command.config, planned);
  const int64_t limit = memory_limit(command, planned, device);
  const ModelSource source = model_source(command.config);
  make_model(command.config, source, world);
  const std::string text_path = join_path(command.output_dir, "max_batch_sizes.txt"),
                    json_path = join_path(command.output_dir, "max_batch_sizes.json");
  for (const std::string& path : {text_path, json_path}) check_output_file(path, command.overwrite);
  options.settle_defaults();
  if (!command.json)
    fmt::print("{}  all other settings are the defaults\n\nweights   {}\n\n",
               options.short_table({"model", "mode", "seq-length", "device"}),
               source.has_weights() ? "from " + source.folder : weights_text(source, {}));

  BatchSearch result{.command = options.command_line(),
                     .model = command.config.model.name,
                     .seq_length = command.config.model.seq_length,
                     .world = world,
                     .memory_limit_bytes = limit,
                     .strategies = {}};
  bool all_fit = true;
  for (const Strategy strategy : strategies) {
    Search search(command, strategy, world, device.is_cuda(), limit);
    Progress progress;
    if (is_terminal(stderr))
      progress.show(fmt::format("{}: trying batch sizes", name_of(strategy)));
    const LargestBatch found = search.run([&](const Trial& trial) {
      if (!command.json && search.trials().size() == 1)
        fmt::print("{}: a batch of {} is predicted\n", name_of(strategy), search.predicted());
      progress.clear();
      if (!command.json)
        fmt::print("{}, batch {}: {} ({})\n", name_of(strategy), trial.batch_size,
                   trial.fits ? "fits" : "too large", trial.by);
      std::fflush(stdout);
    });
    result.strategies.push_back(
        summary(search, found, strategy, world, command.config.step.accumulation));
    all_fit = all_fit && found.largest > 0;
  }
  write_listed_file(text_path, batch_sizes_text(result), command.overwrite);
  write_listed_file(json_path, to_json(result).dump(1) + "\n", command.overwrite);
  if (command.json) {
    fmt::print("{}\n", to_json(result).dump(1));
  } else {
    print_result(result);
    fmt::print("\nwritten   {}, max_batch_sizes.json next to it\n", text_path);
  }
  return all_fit ? kExitDone : kExitFailed;
}

}  // namespace veil
