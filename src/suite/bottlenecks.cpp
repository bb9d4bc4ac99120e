// Which part of a private step takes the time, and how it grows with the sequence.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/tables.h"
#include "suite/growth_plots.h"
#include "suite/layer_norms.h"
#include "suite/mode_plots.h"
#include "suite/modes.h"

namespace veil {
namespace {

constexpr size_t kMostPhases = 6;  // curves of one picture
constexpr const char* kRest = "rest";
constexpr double kLargeMemoryShare = 0.4;  // of the peak: from here on a category is worth advice

Plot phase_scaling(const std::vector<Record>& records, const std::string& mode, size_t again) {
  Curves curves{"time_scaling_" + picture_name(mode) + (again ? fmt::format("_{}", again + 1) : ""),
                titled("Phases by length: " + mode, records),
                kLengthAxis,
                "ms per step",
                true,
                {}};
  std::string spoken;
  size_t place = 0;
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step" || part.share < 0.005 || place >= kMostPhases) continue;
    add_with_law(curves.lines,
                 growth_line(spaced(part.part), colors_of({part.part})[0], records, mode,
                             [&](const Record& record) -> std::optional<double> {
                               const Amounts parts = step_parts(record);
                               const auto found = parts.find(part.part);
                               return found == parts.end() ? std::nullopt
                                                           : std::optional(found->second);
                             }),
                 part.fit, 1);
    if (part.fit)
      spoken += fmt::format(" {}: {}.", spaced(part.part), growth_words(*part.fit, show_time));
    ++place;
  }
  if (curves.lines.empty()) return {};
  return Plot{
      curves.name,
      curves.title,
      "The largest phases of a step, both axes logarithmic. Dashed: the law, where the points "
      "tell one.",
      spoken,
      growth_table(records),
      curves_script(curves)};
}

// Shares of a step in percent; parts that are small in every record are added up.
std::vector<Amounts> shares_of(const std::vector<Record>& records) {
  constexpr double kSmallPercent = 1.5;
  std::vector<Amounts> all;
  Amounts most;
  for (const Record& record : records) {
    Amounts parts = step_parts(record);
    double sum = 0;
    for (const auto& [part, ms] : parts) sum += ms;
    for (auto& [part, ms] : parts) {
      ms = sum > 0 ? 100 * ms / sum : 0;
      most[part] = std::max(most[part], ms);
    }
    all.push_back(std::move(parts));
  }
  for (Amounts& parts : all) {
    Amounts kept;
    for (const auto& [part, share] : parts)
      kept[most[part] < kSmallPercent ? kRest : part] += share;
    parts = std::move(kept);
  }
  return all;
}

Plot phases_by_length(const std::vector<Record>& records) {
  Stack stack{.name = "phases_by_length",
              .title = titled("Where a step's time goes, by length", records),
              .spoken = "",
              .parts = {},
              .amounts = shares_of(records),
              .unit = {1, "% of a step"},
              .total_text = {},
              .axis_end = 100,
              .each = 40};
  const auto present = [&](const std::string& part) {
    return std::any_of(stack.amounts.begin(), stack.amounts.end(),
                       [&](const Amounts& parts) { return parts.count(part) > 0; });
  };
  for (const std::string& part : step_parts_of(records)) {
    if (present(part)) stack.parts.push_back(part);
  }
  if (stack.parts.empty()) return {};
  if (present(kRest)) stack.parts.push_back(kRest);
  for (size_t i = 0; i < records.size(); ++i) {
    std::vector<std::string> words;
    for (const auto& [part, share] : stack.amounts[i])
      words.push_back(fmt::format("{} {:.1f} %", spaced(part), share));
    stack.end_texts.push_back(records[i].ok() ? shown_ms(compared_ms(records[i]))
                                              : outcome_words(records[i]));
    stack.spoken += fmt::format(" {}: {}.", records[i].label,
                                words.empty() ? "not recorded" : join(words, ", "));
  }
  return Plot{stack.name,
              stack.title,
              "Phases on the compute lane, its waits for other lanes, and what lies in neither "
              "(other); parts that are "
              "small everywhere are one (rest). At the end of a bar the whole step.",
              stack.spoken,
              phase_table(records),
              stacked_script(stack, records)};
}

const Record* longest_of(const std::vector<Record>& records, const std::string& mode) {
  const Record* longest = nullptr;
  for (const Record& record : records) {
    const bool fits =
        record.mode == mode && record.ok() && record.seq_length && compared_ms(record);
    if (fits && (!longest || *record.seq_length > *longest->seq_length)) longest = &record;
  }
  return longest;
}

// The longest record of each mode.
std::vector<Record> longest_of_each(const std::vector<Record>& records) {
  std::vector<Record> found;
  for (const std::string& mode : modes_of(mode_figures(records))) {
    if (const Record* const longest = longest_of(records, mode)) found.push_back(*longest);
  }
  return found;
}

std::vector<Plot> bottleneck_plots(const std::vector<Record>& records) {
  std::vector<Plot> plots = {phases_by_length(records)};
  for (Plot& plot : growth_plots({{"", records}}, kLengthAxis, growth_table(records)))
    plots.push_back(std::move(plot));
  for (Plot& plot : layer_norm_plots(longest_of_each(records))) plots.push_back(std::move(plot));
  std::map<std::string, size_t> taken;
  for (const std::string& mode : modes_of(mode_figures(records)))
    plots.push_back(phase_scaling(records, mode, taken[picture_name(mode)]++));
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
}

// The norm rule and the pass that a mode stands for; "" for what auto chose by itself.
std::string rule_of(const Record& record) {
  if (record.mode == "no_dp" || record.mode == "auto" || record.mode == "materialize") return "";
  return record.mode.find("flash") != std::string::npos ? "flash" : "ghost";
}

std::string pass_kind_of(const Record& record) {
  if (record.mode.find("bookkeeping") != std::string::npos) return "book";
  if (record.mode == "materialize") return "keep";
  return record.mode == "no_dp" || record.mode == "auto" ? "" : "two_pass";
}

std::string quoted_command(const std::string& words) {
  return fmt::format("`{}`", words);
}

// What an advice may offer: an option that is set already, or that the other modes of the sweep
// would refuse, is none.
struct AdviceCase {
  const Record& record;
  bool with_plain = false;  // no_dp is among the modes: it refuses the parts of a clip method
  bool has_ranks() const { return record.world.value_or(1) > 1; }
  bool on_gpu() const { return record.device == "cuda"; }
  bool is_sharded() const { return strategy_of(record) == "zero3" || sets_strategy(); }
  bool sets_strategy() const { return record.mode.ends_with("_fsdp"); }
  // The option's value as text, or `usual` if it is not recorded.
  std::string value(const char* option, const std::string& usual) const {
    if (!record.config.is_object() || !record.config.contains(option)) return usual;
    const nlohmann::json& found = record.config[option];
    return found.is_null() ? usual : found.is_string() ? found.get<std::string>() : found.dump();
  }
};

std::vector<std::string> advice_on_norms(const AdviceCase& c) {
  std::vector<std::string> advice;
  const std::string rule = c.with_plain || c.value("rule", "") != "" ? "" : rule_of(c.record);
  if (rule == "ghost")
    advice.push_back("ghost pairs all tokens, so its norms grow with the square of T: " +
                     quoted_command("--rule flash") +
                     " grows linearly and is cheaper for long sequences");
  if (rule == "flash")
    advice.push_back("flash costs a weight gradient whatever T is: " +
                     quoted_command("--rule ghost") + " is cheaper for short sequences");
  if (c.record.mode != "auto")
    advice.push_back(quoted_command("--mode auto") +
                     " takes the cheaper rule for each parameter by T");
  return advice;
}

// What can be done about a part of a step. Empty if no option helps.
std::vector<std::string> advice_on_time(const AdviceCase& c, const std::string& part) {
  const std::string plan = pass_kind_of(c.record);
  std::vector<std::string> advice;
  if (part == "wait for gather") {
    if (c.value("forward-prefetch", "0") == "0" || c.value("backward-prefetch", "pre") != "pre")
      advice.push_back("gather earlier, under the computing of the unit before: " +
                       quoted_command("--forward-prefetch 1 --backward-prefetch pre"));
    if (strategy_of(c.record) == "zero3" && !c.sets_strategy())
      advice.push_back(quoted_command("--strategy zero2") +
                       " gathers once per step, for more memory");
    return advice;
  }
  if (part == "wait for reduce") {
    if (c.value("accumulation", "1") != "1" && c.value("accumulate", "shard") != "whole")
      advice.push_back(quoted_command("--accumulate whole") +
                       " reduces once per logical batch, for more memory");
    if (c.value("reduce", "fp32") == "fp32")
      advice.push_back(quoted_command("--reduce bf16") + " halves what is sent");
    return advice;
  }
  if (part == "wait for copy") {
    if (c.value("cpu-offload", "false") == "true")
      advice.push_back("keep on the device what fits: leave " + quoted_command("--cpu-offload") +
                       " out");
    return advice;
  }
  if (part == "norms" || part == "backward_and_norms" || part == "kept_norms")
    return advice_on_norms(c);
  if (part.starts_with("second_") || (part == "weight_grad" && plan == "two_pass")) {
    if (plan == "two_pass" && !c.with_plain && c.value("pass-plan", "") == "")
      advice.push_back(
          "a second backward is what two passes cost: " + quoted_command("--pass-plan book") +
          " or keep make it once, where their memory is there");
    if (c.record.mode != "auto")
      advice.push_back(quoted_command("--mode auto") + " takes the fastest plan by its prices");
    return advice;
  }
  if (part == "recompute") {
    const std::string kind = c.value("checkpointing", "none");
    if (kind == "full")
      advice.push_back(quoted_command("--checkpointing selective") +
                       " or none, where the memory is there");
    if (kind == "selective")
      advice.push_back(quoted_command("--checkpointing none") + ", where the memory is there");
    return advice;
  }
  if (part == "gap" || part == "other") {
    const bool graph = c.on_gpu() && c.record.graph != "on" && c.value("graph", "auto") != "on";
    if (graph)
      return {"the device waits for the host: " + quoted_command("--graph on") +
              ", or a larger batch"};
    return {"a larger " + quoted_command("--batch-size") + " shares it among more samples"};
  }
  // Text is encoded before the first step, so a token store would not change this.
  if (part == "data" || part == "load") return {};
  if (part.find("update") != std::string::npos) {
    advice.push_back(
        "noise and update touch every parameter once per step: more samples per step share them (" +
        quoted_command("--accumulation") + " or a larger batch)");
    if (c.has_ranks() && !c.is_sharded())
      advice.push_back(quoted_command("--strategy zero3") + " shares them among ranks");
    return advice;
  }
  return {
      "this is the model's own computing, which a step that is not private has as well; no "
      "clipping mode changes it"};
}

// What can be done about a category that fills the peak.
std::vector<std::string> advice_on_memory(const AdviceCase& c, const std::string& category) {
  std::vector<std::string> advice;
  if (category == "activations") {
    if (c.value("checkpointing", "none") != "full")
      advice.push_back(quoted_command("--checkpointing full") +
                       " computes activations again instead of holding them");
    if (c.record.batch_size.value_or(1) > 1)
      advice.push_back("a smaller " + quoted_command("--batch-size") + " with " +
                       quoted_command("--accumulation") + " holds fewer at a time");
    return advice;
  }
  if (category == "clip_records") {
    const std::string plan = pass_kind_of(c.record);
    if ((plan == "keep" || plan == "book") && !c.with_plain && c.value("pass-plan", "") == "")
      advice.push_back(
          std::string(plan == "keep" ? "per-sample gradients" : "booked inputs and gradients") +
          " are held until the norms are known: " + quoted_command("--pass-plan two-pass") +
          " holds none and streams its norms block by block, for a second backward");
    return advice;
  }
  if (category == "temporary" && !c.with_plain && c.record.mode != "no_dp")
    return {"a smaller " + quoted_command("--tile-size") + " takes less at a time"};
  if (category == "parameters" || category == "optimizer" || category == "gradients") {
    if (c.has_ranks() && !c.is_sharded())
      advice.push_back(quoted_command("--strategy zero3") + " spreads them over ranks");
    if (c.on_gpu() && category != "gradients" && c.value("cpu-offload", "false") != "true")
      advice.push_back(quoted_command("--cpu-offload") + " keeps them on the host");
  }
  return advice;
}

void judge_mode(const std::vector<Record>& records, const std::string& mode, Verdict& verdict) {
  const auto found = bottleneck_of(records, mode);
  if (!found) return;
  const Record& longest = *longest_of(records, mode);
  const std::string law = found->fit && found->fit->lengths > 2
                              ? fmt::format(", which {}", growth_words(*found->fit, show_time))
                              : "";
  verdict.findings.push_back(
      fmt::format("Bottleneck of {}: {} of a step at T = {} ({} of {}) goes to {}{}.", mode,
                  percent_text(found->share), found->length, shown_ms(found->ms),
                  shown_ms(compared_ms(longest)), spaced(found->part), law));
  std::vector<std::string> next;
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step" || part.part == found->part || part.share < 0.03 || next.size() >= 4)
      continue;
    next.push_back(fmt::format(
        "{} {}{}", spaced(part.part), percent_text(part.share),
        part.fit && part.fit->is_told() ? fmt::format(" ({})", growth_label(*part.fit)) : ""));
  }
  if (!next.empty())
    verdict.findings.push_back(fmt::format("Then, in {}: {}.", mode, join(next, ", ")));
  for (const std::string& words : {growth_sentence(records, mode), layer_norm_words(longest)}) {
    if (!words.empty()) verdict.findings.push_back(words);
  }
  const AdviceCase advised{longest, std::any_of(records.begin(), records.end(),
                                                [](const Record& r) { return is_plain(&r); })};
  const std::vector<std::string> advice = advice_on_time(advised, found->part);
  if (!advice.empty())
    verdict.findings.push_back(fmt::format("Advice on time, {}: {}.", mode, join(advice, "; ")));
  for (const PartGrowth& part : memory_growth(records, mode)) {
    if (part.part == "peak" || part.share < kLargeMemoryShare) continue;
    const std::vector<std::string> help = advice_on_memory(advised, part.part);
    verdict.findings.push_back(
        fmt::format("Memory of {}: {} of the peak at T = {} is for {}{}{}.", mode,
                    percent_text(part.share), found->length, spaced(part.part),
                    part.fit && part.fit->lengths > 2
                        ? fmt::format(", an amount that {}", growth_words(*part.fit, show_memory))
                        : "",
                    help.empty() ? "" : fmt::format("; {}", join(help, "; "))));
    break;
  }
  // Hidden communication is no bottleneck, but worth knowing.
  for (const auto& [kind, transfer] : longest.communication) {
    const double total = std::max(transfer.modelled_ms.value_or(0), transfer.total_ms.value_or(0));
    const double exposed = exposed_ms(longest, transfer).value_or(0);
    if (total > 0)
      verdict.findings.push_back(
          fmt::format("Hidden in {}: of {} of {} {} were not waited for.", mode, shown_ms(total),
                      kind, percent_text(std::clamp(1 - exposed / total, 0.0, 1.0))));
  }
  verdict.figures.push_back({mode + ": largest phase", percent_text(found->share),
                             fmt::format("{}, T = {}", spaced(found->part), found->length)});
}

// The largest part of a step in each mode at its longest length, or of the mode in which it is
// largest if that would be a long sentence.
std::string bottleneck_headline(const std::vector<Bottleneck>& found) {
  if (found.empty())
    return "No experiment ended well with its phases recorded, so there is nothing to say.";
  std::vector<std::string> parts;
  const Bottleneck* most = &found.front();
  for (const Bottleneck& one : found) {
    parts.push_back(
        fmt::format("{} in {} ({})", spaced(one.part), one.mode, percent_text(one.share)));
    if (one.share > most->share) most = &one;
  }
  const bool same_length = std::all_of(found.begin(), found.end(), [&](const Bottleneck& one) {
    return one.length == found.front().length;
  });
  const std::string all = fmt::format("At T = {}, the largest part of a step is {}.",
                                      found.front().length, join(parts, ", "));
  return short_headline(
      {same_length ? all : "",
       fmt::format("At T = {}, {} of a step goes to {} in {}, the largest share of any mode.",
                   most->length, percent_text(most->share), spaced(most->part), most->mode)});
}

Verdict bottleneck_verdict(const RecordFolder& folder) {
  const std::vector<ModeFigures> all = mode_figures(folder.records);
  Verdict verdict;
  std::vector<Bottleneck> largest;
  for (const std::string& mode : modes_of(all)) {
    if (const auto found = bottleneck_of(folder.records, mode)) largest.push_back(*found);
    judge_mode(folder.records, mode, verdict);
  }
  verdict.headline = bottleneck_headline(largest);
  if (lengths_of(all).size() < 3)
    verdict.caveats.push_back(
        "Fewer than three lengths were measured: they cannot tell a law of growth.");
  return verdict;
}

constexpr size_t kMostLayerRows = 40;

// What each layer's rows take at the longest length of each mode, the slowest first.
Table layer_table(const std::vector<Record>& records) {
  Table table({"mode", "T", "row", "ms per step"});
  for (const std::string& mode : modes_of(mode_figures(records))) {
    const Record* const longest = longest_of(records, mode);
    if (!longest) continue;
    std::vector<std::pair<std::string, double>> rows(longest->layer_ms.begin(),
                                                     longest->layer_ms.end());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    if (rows.size() > kMostLayerRows) rows.resize(kMostLayerRows);
    for (const auto& [row, ms] : rows)
      table.row({mode, std::to_string(*longest->seq_length), row, fmt::format("{:.3f}", ms)});
  }
  return table;
}

// The options --use-flash, --use-bookkeeping and --cpu of other profilers of this question.
struct BottleneckGrid : ModeGrid {
  bool use_flash = false, use_bookkeeping = false, use_cpu = false;
};

void prepare(BottleneckGrid& grid, RunConfig& e, const SuiteCall& call) {
  const bool by_words = grid.use_flash || grid.use_bookkeeping;
  if (by_words && call.given("mode"))
    field_error("mode", "names modes as use_flash and use_bookkeeping do: give one of them");
  if (by_words) {
    grid.modes.clear();
    if (grid.use_flash) grid.modes.push_back(Mode::flash);
    if (grid.use_bookkeeping) grid.modes.push_back(Mode::bookkeeping);
  }
  if (grid.use_cpu) {
    if (e.placement.device == DeviceKind::gpu)
      field_error("device", "gpu with cpu: pass one of them");
    e.placement.device = DeviceKind::cpu;
    if (!call.given("model")) e.model.name = "llama-tiny";
    if (!call.given("seq-length")) grid.seq_lengths = {128, 256, 512, 1024};
  }
  prepare_modes(grid, e, call);
}

}  // namespace

std::optional<Bottleneck> bottleneck_of(const std::vector<Record>& records,
                                        const std::string& mode) {
  const Record* longest = longest_of(records, mode);
  if (!longest) return {};
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step") continue;
    return Bottleneck{mode, part.part, *longest->seq_length, part.longest, part.share, part.fit};
  }
  return {};
}

Suite bottlenecks_suite() {
  const auto grid = std::make_shared<BottleneckGrid>();
  grid->modes = {Mode::flash, Mode::bookkeeping};
  grid->seq_lengths = {1024, 2048, 4096, 8192, 16384};
  Suite suite = mode_suite("bottlenecks", grid);
  suite.help = "which phase of a private step takes the time, and how it grows with the sequence";
  suite.page = {
      .question =
          "Which part of a private step takes the time, and how does it grow with the sequence?",
      .table = mode_table,
      .plots = {bottleneck_plots, memory_plot, timeline_plots},
      .verdict = bottleneck_verdict,
      .summary_beside_pictures = true,
      .more_tables = [](const std::vector<Record>& records) -> std::vector<PageTable> {
        std::vector<PageTable> tables = {
            {"Growth with the sequence", kGrowthCaption, growth_table(records)}};
        if (auto norms = layer_norm_table(longest_of_each(records)))
          tables.push_back(std::move(*norms));
        if (Table layers = layer_table(records); layers.rows() > 0)
          tables.push_back({"Time by layer",
                            "Milliseconds of a step's rows at the longest T, the slowest first; "
                            "rows with norms include the work on reported gradients",
                            std::move(layers)});
        return tables;
      },
      .more_files = [](const RecordFolder& folder) -> std::vector<ReportFile> {
        return {{"scaling.csv", growth_table(folder.records).csv()}};
      },
      .peer_plots = privacy_cost_plots};
  RunConfig& e = suite.config;
  e.model.name = "llama3.2-1b";
  e.step.batch_size = 4;
  e.measure.iterations = 5;
  e.measure.warmup = 2;
  e.measure.profile = {ProfileKind::phases, ProfileKind::norms, ProfileKind::layers,
                       ProfileKind::memory};
  suite.prepare = [grid](RunConfig& experiment, const SuiteCall& call) {
    prepare(*grid, experiment, call);
    return std::vector<std::string>{};
  };
  suite.options.push_back(
      {.name = "use-flash", .field = &grid->use_flash, .help = "the same as --mode flash"});
  suite.options.push_back({.name = "use-bookkeeping",
                           .field = &grid->use_bookkeeping,
                           .help = "the same as --mode bookkeeping"});
  suite.options.push_back(
      {.name = "cpu",
       .field = &grid->use_cpu,
       .help = "on the CPU, with llama-tiny and lengths from 128 to 1024 unless others are named"});
  return suite;
}

}  // namespace veil
