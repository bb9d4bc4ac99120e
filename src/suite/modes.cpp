#include "suite/modes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "report/figures.h"
#include "report/tables.h"

namespace veil {
namespace {

constexpr const char* kBase = "no_dp";

// Growth of each part of `amounts` over the lengths, and of their whole.
std::vector<PartGrowth> growth(const std::vector<Record>& records, const std::string& mode,
                               const std::string& whole, Amounts (*amounts)(const Record&),
                               std::optional<double> (*total)(const Record&)) {
  std::map<std::string, std::vector<std::pair<double, double>>> points;
  const Record* longest = nullptr;
  for (const Record& record : records) {
    if (record.mode != mode || !record.ok() || !record.seq_length || !total(record)) continue;
    const auto length = static_cast<double>(*record.seq_length);
    for (const auto& [part, amount] : amounts(record)) points[part].emplace_back(length, amount);
    points[whole].emplace_back(length, *total(record));
    if (!longest || *record.seq_length > *longest->seq_length) longest = &record;
  }
  std::vector<PartGrowth> result;
  if (!longest) return result;
  Amounts at_longest = amounts(*longest);
  const double all = *total(*longest);
  at_longest[whole] = all;
  for (const auto& [part, amount] : at_longest)
    result.push_back({mode, part, fit_growth(points[part]), amount, all > 0 ? amount / all : 0});
  std::stable_sort(result.begin(), result.end(),
                   [](const PartGrowth& a, const PartGrowth& b) { return a.longest > b.longest; });
  return result;
}

}  // namespace

std::vector<Experiment> mode_experiments(const ModeGrid& grid,
                                         const std::vector<std::string>& common) {
  std::vector<Experiment> experiments;
  for (const Mode mode : grid.modes) {
    for (const int64_t length : grid.seq_lengths)
      experiments.push_back({fmt::format("{}_seq{}", name_of(mode), length),
                             fmt::format("{}, T={}", name_of(mode), length),
                             {"--mode", name_of(mode), "--seq-length", std::to_string(length)},
                             fmt::format("seq{}", length)});
  }
  return with_common(std::move(experiments), common, "a mode or sequence length");
}

Suite mode_suite(const std::string& name, const std::shared_ptr<ModeGrid>& grid) {
  Suite suite{.name = name,
              .help = "",
              .private_step = true,
              .told = {"model", "task", "labels", "batch-size", "warmup", "iterations", "optimizer",
                       "storage", "sigma", "clip-norm", "compute", "reduce", "device",
                       "learning-rate", "profile"},
              .prepare =
                  [grid](RunConfig& experiment, const SuiteCall& call) {
                    prepare_modes(*grid, experiment, call);
                    return std::vector<std::string>{};
                  },
              .experiments =
                  [grid](const std::vector<std::string>& common) {
                    return mode_experiments(*grid, common);
                  }};
  suite.options = {{.name = "mode",
                    .field = &grid->modes,
                    .aliases = {"modes"},
                    .help = fmt::format("which are compared: {}", join(all_names<Mode>(), ", ")),
                    .value = "MODE"},
                   {.name = "seq-length",
                    .field = &grid->seq_lengths,
                    .aliases = {"seq_lengths", "seq", "seq_len", "max_length", "sequence_length"},
                    .help = "tokens in a sequence, one after another",
                    .minimum = 1,
                    .maximum = 1 << 24},
                   {.name = "token",
                    .field = &grid->token,
                    .help = "of the hub: a suite downloads nothing, `veil fetch` does",
                    .value = "TOKEN",
                    .secret = true}};
  suite.refused = {
      {{"input-size"}, "it is the linear stack's; this suite compares on a language model"}};
  suite.config.optimizer.learning_rate = 1e-5;
  suite.config.optimizer.kind = OptimizerKind::sgd;
  return suite;
}

void prepare_modes(const ModeGrid& grid, RunConfig& e, const SuiteCall& call) {
  if (canonical(e.model.name).rfind("linear", 0) == 0)
    field_error(
        "model",
        "{}: this suite compares on a language model; `veil suite linear` takes the linear stack",
        e.model.name);
  const bool has_gpu = gpu_count() > 0, automatic = e.placement.device == DeviceKind::automatic;
  if (e.placement.device == DeviceKind::gpu || (automatic && has_gpu)) {
    if (!call.given("storage")) e.step.storage = Precision::bf16;
    if (!call.given("compute")) e.step.compute = Precision::bf16;
    if (!call.given("reduce")) e.step.reduce = Precision::bf16;
  }
  for (const Mode mode : grid.modes) {
    e.privacy.method.mode = mode;
    if (mode == Mode::no_dp && e.privacy.method.sets_a_part())
      field_error("mode",
                  "no_dp: rule, pass_plan, tile_size, combine_every and memory_budget are of a "
                  "private step; leave no_dp out");
    for (const int64_t length : grid.seq_lengths) {
      e.model.seq_length = length;
      check_config(e);
      make_model(e, model_source(e), 1);
    }
  }
}

std::vector<ModeFigures> mode_figures(const std::vector<Record>& records) {
  std::vector<ModeFigures> all;
  for (const Record& record : records) {
    ModeFigures figures;
    figures.record = &record;
    figures.mode = record.mode;
    figures.length = record.seq_length.value_or(0);
    // A run that failed early has no mode in its record, but in its name.
    const size_t mark = record.experiment.rfind("_seq");
    if (figures.mode.empty() && mark != std::string::npos) {
      figures.mode = record.experiment.substr(0, mark);
      figures.length = std::atoll(record.experiment.c_str() + mark + 4);
    }
    figures.ms = compared_ms(record);
    if (record.ok())
      figures.spread_ms = record.std_time_ms, figures.bytes = record.peak_memory_bytes;
    all.push_back(figures);
  }
  for (ModeFigures& figures : all) {
    const ModeFigures* base = find_mode(all, kBase, figures.length);
    if (!base || base == &figures) continue;
    if (figures.bytes && base->bytes) figures.more_bytes = *figures.bytes - *base->bytes;
    if (figures.ms && base->ms && *base->ms > 0) {
      figures.more_ms = *figures.ms - *base->ms;
      figures.more_share = *figures.more_ms / *base->ms;
    }
  }
  return all;
}

std::vector<std::string> modes_of(const std::vector<ModeFigures>& all) {
  std::vector<std::string> modes;
  for (const ModeFigures& figures : all) {
    if (std::find(modes.begin(), modes.end(), figures.mode) == modes.end())
      modes.push_back(figures.mode);
  }
  // The baseline comes first, whatever the order of the files.
  std::stable_partition(modes.begin(), modes.end(),
                        [](const std::string& mode) { return mode == kBase; });
  return modes;
}

std::vector<int64_t> lengths_of(const std::vector<ModeFigures>& all) {
  std::vector<int64_t> lengths;
  for (const ModeFigures& figures : all) lengths.push_back(figures.length);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

const ModeFigures* find_mode(const std::vector<ModeFigures>& all, const std::string& mode,
                             int64_t length) {
  for (const ModeFigures& figures : all) {
    if (figures.mode == mode && figures.length == length) return &figures;
  }
  return nullptr;
}

Table mode_table(const std::vector<Record>& records) {
  const std::vector<ModeFigures> all = mode_figures(records);
  const bool based = std::any_of(all.begin(), all.end(),
                                 [](const ModeFigures& f) { return f.more_bytes || f.more_share; });
  std::vector<std::string> header = {"mode", "T", "step", "spread", "peak memory"};
  if (based) header.insert(header.end(), {"memory over no_dp", "time over no_dp"});
  const bool watched = std::any_of(records.begin(), records.end(), [](const Record& r) {
    return r.gpu_state.utilisation_percent.has_value();
  });
  if (watched) header.push_back("GPU busy");
  header.insert(header.end(), {"tokens/s", "batch", "ranks", "outcome"});
  Table table(header);
  BytesScale peaks, changes;
  for (const ModeFigures& f : all) peaks.see(f.bytes), changes.see(f.more_bytes);
  for (const int64_t length : lengths_of(all)) {
    for (const std::string& mode : modes_of(all)) {
      const ModeFigures* f = find_mode(all, mode, length);
      if (!f) continue;
      const Record& record = *f->record;
      std::string step = shown_ms(f->ms);
      if (f->ms && record.simulated && record.modelled_step_ms) step += "*";
      std::vector<std::string> cells = {mode, std::to_string(length), step,
                                        f->ms ? shown_ms(f->spread_ms) : "-", peaks.show(f->bytes)};
      if (based) {
        cells.push_back(changes.show_change(f->more_bytes));
        cells.push_back(f->more_share
                            ? fmt::format("{}{} ({:+.1f}%)", *f->more_ms >= 0 ? "+" : "-",
                                          shown_ms(std::abs(*f->more_ms)), 100 * *f->more_share)
                            : "-");
      }
      if (watched)
        cells.push_back(record.gpu_state.utilisation_percent
                            ? fmt::format("{:.0f}%", *record.gpu_state.utilisation_percent)
                            : "-");
      const auto ranks = record.world ? record.world : record.num_gpus;
      cells.insert(
          cells.end(),
          {record.tokens_per_second && f->ms ? format_count(*record.tokens_per_second) : "-",
           record.batch_size ? std::to_string(*record.batch_size) : "-",
           ranks ? std::to_string(*ranks) : "-",
           record.outcome.empty() ? "ok" : outcome_words(record)});
      table.row(std::move(cells));
    }
  }
  return table;
}

std::string show_time(double ms) {
  return shown_ms(ms);
}

std::string show_memory(double bytes) {
  return shown_bytes(bytes);
}

std::vector<PartGrowth> time_growth(const std::vector<Record>& records, const std::string& mode) {
  return growth(records, mode, "step", step_parts, compared_ms);
}

std::vector<PartGrowth> memory_growth(const std::vector<Record>& records, const std::string& mode) {
  return growth(
      records, mode, "peak", [](const Record& record) { return record.breakdown; },
      [](const Record& record) { return record.peak_memory_bytes; });
}

Table growth_table(const std::vector<Record>& records) {
  Table table({"mode", "of", "part", "at the longest T", "share", "growth", "law"});
  BytesScale scale;
  for (const Record& record : records) scale.see(record.peak_memory_bytes);
  for (const std::string& mode : modes_of(mode_figures(records))) {
    const auto add = [&](const char* of, const PartGrowth& part, const ShowAmount& show) {
      if (part.longest <= 0) return;
      table.row({mode, of, spaced(part.part), show(part.longest),
                 fmt::format("{:.1f} %", 100 * part.share),
                 part.fit ? growth_label(*part.fit) : "-",
                 part.fit ? law_text(*part.fit, show) : "-"});
    };
    for (const PartGrowth& part : time_growth(records, mode)) add("time", part, show_time);
    for (const PartGrowth& part : memory_growth(records, mode))
      add("memory", part, [&](double bytes) { return scale.show(bytes); });
  }
  return table;
}

std::string growth_sentence(const std::vector<Record>& records, const std::string& mode) {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<PartGrowth>& growth, const char* whole, const char* name,
                       const ShowAmount& show) {
    for (const PartGrowth& part : growth) {
      if (part.part == whole && part.fit && part.fit->lengths > 2)
        parts.push_back(fmt::format("{} {}", name, growth_words(*part.fit, show)));
    }
  };
  add(time_growth(records, mode), "step", "time", show_time);
  add(memory_growth(records, mode), "peak", "memory", show_memory);
  return parts.empty() ? "" : fmt::format("Growth of {}: {}.", mode, join(parts, "; "));
}

std::string titled(const std::string& title, const std::vector<Record>& records) {
  const bool modelled =
      std::any_of(records.begin(), records.end(), [](const Record& r) { return r.simulated; });
  return modelled ? title + " (communication modelled)" : title;
}

}  // namespace veil
