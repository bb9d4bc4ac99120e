// Which part of a private step takes the time, and how it grows with the sequence.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "report/bars.h"
#include "report/charts.h"
#include "report/figures.h"
#include "report/tables.h"
#include "suite/mode_plots.h"
#include "suite/modes.h"

namespace veil {
namespace {

constexpr size_t kMostPhases = 6;  // curves of one picture
constexpr const char* kRest = "rest";
constexpr double kLargeMemoryShare = 0.4;  // of the peak: from here on a category is worth advice

// A line of measured points, and its fit.
void add_with_fit(std::vector<ChartLine>& lines, ChartLine line,
                  const std::optional<PowerFit>& fit) {
  if (line.points.empty()) return;
  ChartLine law{line.name + ", fitted", line.color, {}, true};
  if (fit && line.points.size() > 1) {
    for (const ChartPoint* point : {&line.points.front(), &line.points.back()})
      law.points.push_back({point->x, fit->factor * std::pow(point->x, fit->exponent)});
  }
  lines.push_back(std::move(line));
  if (!law.points.empty()) lines.push_back(std::move(law));
}

ChartLine line_of(const std::string& name, const std::string& color,
                  const std::vector<Record>& records, const std::string& mode,
                  const std::function<std::optional<double>(const Record&)>& value) {
  ChartLine line{name, color, {}};
  for (const Record& record : records) {
    if (record.mode != mode || !record.ok() || !record.seq_length) continue;
    if (const auto y = value(record); y && *y > 0)
      line.points.push_back({static_cast<double>(*record.seq_length), *y});
  }
  std::sort(line.points.begin(), line.points.end(),
            [](const auto& a, const auto& b) { return a.x < b.x; });
  return line;
}

Plot whole_scaling(const std::string& name, const std::string& title, const std::string& axis,
                   const std::vector<Record>& records, double unit,
                   const std::function<std::optional<double>(const Record&)>& value,
                   std::vector<PartGrowth> (*growth)(const std::vector<Record>&,
                                                     const std::string&),
                   const std::string& whole) {
  Curves curves{name, title, kLengthAxis, axis, true, {}};
  const std::vector<std::string> modes = modes_of(mode_figures(records));
  std::string spoken;
  for (size_t m = 0; m < modes.size(); ++m) {
    for (PartGrowth& part : growth(records, modes[m])) {
      if (part.part != whole) continue;
      if (part.fit) spoken += fmt::format(" {}: {}.", modes[m], exponent_words(*part.fit));
      if (part.fit) part.fit->factor /= unit;
      add_with_fit(curves.lines,
                   line_of(modes[m], mode_color(modes[m], m), records, modes[m],
                           [&](const Record& record) -> std::optional<double> {
                             const auto v = value(record);
                             return v ? std::optional(*v / unit) : std::nullopt;
                           }),
                   part.fit);
    }
  }
  if (curves.lines.empty()) return {};
  return Plot{name,
              title,
              "Both axes are logarithmic: a power of T is a straight line, and its slope the "
              "exponent. Dashed: the "
              "fitted law.",
              spoken,
              growth_table(records),
              curves_script(curves)};
}

Plot phase_scaling(const std::vector<Record>& records, const std::string& mode) {
  Curves curves{"time_scaling_" + mode,
                titled("Phases by length: " + mode, records),
                kLengthAxis,
                "ms per step",
                true,
                {}};
  std::string spoken;
  size_t place = 0;
  for (const PartGrowth& part : time_growth(records, mode)) {
    if (part.part == "step" || part.share < 0.005 || place >= kMostPhases) continue;
    add_with_fit(curves.lines,
                 line_of(spaced(part.part), colors_of({part.part})[0], records, mode,
                         [&](const Record& record) -> std::optional<double> {
                           const Amounts parts = step_parts(record);
                           const auto found = parts.find(part.part);
                           return found == parts.end() ? std::nullopt
                                                       : std::optional(found->second);
                         }),
                 part.fit);
    if (part.fit) spoken += fmt::format(" {}: {}.", spaced(part.part), exponent_words(*part.fit));
    ++place;
  }
  if (curves.lines.empty()) return {};
  return Plot{curves.name,
              curves.title,
              "The largest phases of a step, both axes logarithmic. Dashed: the fitted law.",
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

std::vector<Plot> bottleneck_plots(const std::vector<Record>& records) {
  double largest = 0;
  for (const Record& record : records)
    largest = std::max(largest, record.peak_memory_bytes.value_or(0));
  const Unit unit = bytes_unit(largest);
  std::vector<Plot> plots = {
      phases_by_length(records),
      whole_scaling("time_scaling", titled("Time by length", records), "ms per step", records, 1,
                    compared_ms, time_growth, "step"),
      whole_scaling(
          "memory_scaling", "Peak memory by length", unit.name + " at the peak", records, unit.size,
          [](const Record& record) { return record.peak_memory_bytes; }, memory_growth, "peak")};
  for (const std::string& mode : modes_of(mode_figures(records)))
    plots.push_back(phase_scaling(records, mode));
  std::erase_if(plots, [](const Plot& plot) { return plot.name.empty(); });
  return plots;
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

std::string pass_kind_of(const Record& record) {
  if (record.mode.find("bookkeeping") != std::string::npos) return "book";
  if (record.mode == "materialize") return "keep";
  return record.mode == "no_dp" || record.mode == "auto" ? "" : "two_pass";
}

std::string quoted_command(const std::string& words) {
  return fmt::format("`{}`", words);
}

// What can be done about a part of a step, or about a category that fills the peak. Empty if no
// option helps.
std::vector<std::string> advice_on_time(const Record& record, const std::string& part) {
  const std::string plan = pass_kind_of(record);
  if (part == "wait for gather")
    return {"gather earlier, under the computing of the unit before: " +
                quoted_command("--forward-prefetch 1 --backward-prefetch pre"),
            "larger units send fewer messages: " + quoted_command("--wrap size"),
            quoted_command("--strategy zero2") + " gathers once per step, for more memory"};
  if (part == "wait for reduce")
    return {
        "reduce under computing: a booked or two-pass plan reduces a unit while the next one's "
        "gradient is made",
        quoted_command("--accumulate whole") + " reduces once a logical batch, for more memory",
        quoted_command("--reduce bf16") + " halves what is sent"};
  if (part == "wait for copy")
    return {"keep on the device what fits: leave " + quoted_command("--cpu-offload") + " out"};
  if (part == "norms" || part == "backward_and_norms" || part == "kept_norms") {
    std::vector<std::string> advice;
    const std::string rule = record.mode.find("flash") != std::string::npos ? "flash" : "ghost";
    if (rule == "ghost")
      advice.push_back("ghost pairs all tokens, so its norms grow with the square of T: " +
                       quoted_command("--rule flash") +
                       " grows linearly and is cheaper for long sequences");
    if (rule == "flash")
      advice.push_back("flash costs a weight gradient whatever T is: " +
                       quoted_command("--rule ghost") + " is cheaper for short sequences");
    advice.push_back(quoted_command("--mode auto") +
                     " takes the cheaper rule for each parameter by T");
    advice.push_back(quoted_command("--tile-size") +
                     " sets the tiles; larger ones have fewer launches and more memory");
    return advice;
  }
  if (part.starts_with("second_") || (part == "weight_grad" && plan == "two_pass"))
    return {
        "a second backward is what two passes cost: " + quoted_command("--pass-plan book") +
            " or keep make it once, where their memory is there",
        quoted_command("--mode auto --memory-budget GIB") + " takes the fastest plan that fits"};
  if (part == "recompute")
    return {quoted_command("--checkpointing selective") + " or none, where the memory is there"};
  if (part == "gap" || part == "other")
    return {"the device waits for the host: " + quoted_command("--graph on") +
            ", or a larger batch"};
  if (part == "data") return {"the loader is waited for: a token store is read faster than text"};
  if (part.find("update") != std::string::npos)
    return {
        "noise and update touch every parameter once per step: more samples per step share them (" +
        quoted_command("--accumulation") + " or a larger batch); " +
        quoted_command("--strategy zero3") + " shares them among ranks"};
  return {
      "this is the model's own computing, which a step that is not private has as well; no "
      "clipping mode changes it"};
}

std::vector<std::string> advice_on_memory(const Record& record, const std::string& category) {
  if (category == "activations")
    return {quoted_command("--checkpointing full") +
                " computes activations again instead of holding them",
            "activations are let go as soon as their last pass has read them; a smaller " +
                quoted_command("--batch-size") + " with " + quoted_command("--accumulation") +
                " holds fewer at a time"};
  if (category == "clip_records") {
    const bool keeps = pass_kind_of(record) == "keep";
    return {std::string(keeps ? "per-sample gradients" : "booked inputs and gradients") +
            " are held until the norms are known: " + quoted_command("--pass-plan two-pass") +
            " holds none and streams its norms block by block, for a second backward"};
  }
  if (category == "temporary")
    return {"a smaller " + quoted_command("--tile-size") + " takes less at a time"};
  if (category == "parameters" || category == "optimizer" || category == "gradients")
    return {quoted_command("--strategy zero3") + " spreads them over ranks, " +
            quoted_command("--cpu-offload") + " keeps them on the host"};
  return {};
}

void judge_mode(const std::vector<Record>& records, const std::string& mode, Verdict& verdict) {
  const auto found = bottleneck_of(records, mode);
  if (!found) return;
  const Record& longest = *longest_of(records, mode);
  const std::string law =
      found->fit && found->fit->points > 2
          ? fmt::format(", which {}, {}", growth_words(*found->fit), exponent_words(*found->fit))
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
        part.fit && part.fit->points > 2 ? fmt::format(" (T^{:.1f})", part.fit->exponent) : ""));
  }
  if (!next.empty())
    verdict.findings.push_back(fmt::format("Then, in {}: {}.", mode, join(next, ", ")));
  if (const std::string words = growth_sentence(records, mode); !words.empty())
    verdict.findings.push_back(words);
  const std::vector<std::string> advice = advice_on_time(longest, found->part);
  if (!advice.empty())
    verdict.findings.push_back(fmt::format("Advice on time, {}: {}.", mode, join(advice, "; ")));
  for (const PartGrowth& part : memory_growth(records, mode)) {
    if (part.part == "peak" || part.share < kLargeMemoryShare) continue;
    const std::vector<std::string> help = advice_on_memory(longest, part.part);
    verdict.findings.push_back(
        fmt::format("Memory of {}: {} of the peak at T = {} is for {}{}{}.", mode,
                    percent_text(part.share), found->length, spaced(part.part),
                    part.fit && part.fit->points > 2
                        ? fmt::format(", an amount that {}", growth_words(*part.fit))
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

Verdict bottleneck_verdict(const RecordFolder& folder) {
  const std::vector<ModeFigures> all = mode_figures(folder.records);
  Verdict verdict;
  std::vector<std::string> parts;
  for (const std::string& mode : modes_of(all)) {
    if (const auto found = bottleneck_of(folder.records, mode))
      parts.push_back(fmt::format("in {} {} of a step at T = {} goes to {}", mode,
                                  percent_text(found->share), found->length, spaced(found->part)));
    judge_mode(folder.records, mode, verdict);
  }
  std::string headline =
      parts.empty()
          ? "No experiment ended well with its phases recorded, so there is nothing to say."
          : join(parts, "; ") + ".";
  headline[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(headline[0])));
  verdict.headline = headline;
  if (lengths_of(all).size() < 3)
    verdict.caveats.push_back(
        "Fewer than three lengths were measured: exponents have no confidence.");
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
            {"Growth with the sequence",
             "Fits of c T^k by least squares of logarithms, with 95% confidence",
             growth_table(records)}};
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
