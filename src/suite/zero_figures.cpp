// What the ZeRO suite compares: one line of figures per configuration, as a table and as CSV.
#include <fmt/core.h>

#include <algorithm>

#include "base/units.h"
#include "report/tables.h"
#include "suite/zero.h"

namespace veil {
namespace {

bool is_collective(const std::string& lane) {
  return lane == "gather" || lane == "reduce";
}

std::optional<double> total_ms(const Record& record, const RecordTransfer& transfer) {
  return record.simulated && transfer.modelled_ms ? transfer.modelled_ms : transfer.total_ms;
}

std::string shown_percent(std::optional<double> percent) {
  return percent ? fmt::format("{:.1f} %", *percent) : "-";
}
std::optional<double> in_percent(std::optional<double> share) {
  return share ? std::optional(100 * *share) : std::nullopt;
}

std::string exact(std::optional<double> number) {
  return number ? fmt::format("{}", *number) : "";
}
std::string whole(std::optional<double> number) {
  return number ? fmt::format("{:.0f}", *number) : "";
}

void read_communication(ZeroFigures& figures) {
  const Record& record = *figures.record;
  std::optional<double> exposed;
  for (const auto& [lane, transfer] : record.communication) {
    if (!is_collective(lane)) continue;
    if (const auto ms = total_ms(record, transfer))
      figures.communication_ms = figures.communication_ms.value_or(0) + *ms;
    if (const auto ms = exposed_ms(record, transfer)) exposed = exposed.value_or(0) + *ms;
  }
  if (exposed) figures.communication_share = *exposed / *figures.step_ms;
}

void read_memory(ZeroFigures& figures) {
  const Record& record = *figures.record;
  figures.peak_bytes = record.peak_memory_bytes;
  figures.mean_bytes = record.memory_mean_bytes;
  for (const RecordRank& rank : record.ranks) {
    if (rank.peak_memory_bytes)
      figures.peak_bytes = std::max(figures.peak_bytes.value_or(0), *rank.peak_memory_bytes);
    if (rank.memory_mean_bytes)
      figures.mean_bytes = std::max(figures.mean_bytes.value_or(0), *rank.memory_mean_bytes);
  }
}

}  // namespace

std::string modelled_words(const std::vector<Record>& records) {
  for (const Record& record : records) {
    if (!record.simulated) continue;
    return "communication modelled" + (record.link_gb_per_s
                                           ? fmt::format(" at {} GB/s", *record.link_gb_per_s)
                                           : std::string());
  }
  return "";
}

std::vector<ZeroFigures> zero_figures(const std::vector<Record>& records) {
  std::vector<ZeroFigures> all;
  for (const Record& record : records) {
    ZeroFigures figures;
    figures.record = &record;
    figures.strategy = strategy_of(record);
    // A run that failed early has no settings in its record, but in its name.
    const std::string& name = record.experiment;
    if (figures.strategy.empty()) figures.strategy = name.substr(0, name.find('_'));
    const auto number_after = [&](const std::string& mark) -> int64_t {
      const size_t at = name.find(mark);
      return at == std::string::npos ? 0 : std::atoll(name.c_str() + at + mark.size());
    };
    figures.batch = record.batch_size.value_or(number_after("_bs"));
    const auto found = record.config.find("accumulation");
    figures.accumulation = found != record.config.end() && found->is_number_integer()
                               ? found->get<int64_t>()
                               : std::max<int64_t>(1, number_after("_ga"));
    figures.step_ms = compared_ms(record);
    figures.ok = record.ok() && figures.step_ms && *figures.step_ms > 0;
    if (figures.ok) {
      figures.tokens_per_second = record.tokens_per_second;
      // To first order a rate spreads as its time does.
      if (record.tokens_per_second && record.std_time_ms && record.avg_time_ms &&
          *record.avg_time_ms > 0)
        figures.tokens_deviation =
            *record.tokens_per_second * *record.std_time_ms / *record.avg_time_ms;
      read_memory(figures);
      read_communication(figures);
      if (record.data.load_ms) figures.data_share = *record.data.load_ms / *figures.step_ms;
      figures.utilisation = record.gpu_state.utilisation_percent;
      double computing = 0;
      for (const auto& [phase, ms] : record.phases)
        computing += phase == "gap" || phase == "data" ? 0 : ms;
      if (!record.phases.empty()) figures.computing = 100 * computing / *figures.step_ms;
    }
    all.push_back(std::move(figures));
  }
  return all;
}

Table zero_table(const std::vector<Record>& records) {
  const bool nvml = std::any_of(records.begin(), records.end(),
                                [](const Record& r) { return r.gpu_state.utilisation_percent; });
  const bool rated =
      std::any_of(records.begin(), records.end(), [](const Record& r) { return r.mfu; });
  std::vector<std::string> header = {"set-up", "tokens/s", "+-", "step",
                                     nvml ? "GPU busy" : "computing"};
  if (rated) header.emplace_back("MFU");
  for (const char* name : {"peak memory", "mean memory", "comm. total", "comm. exposed", "data",
                           "loader busy", "end to end", "outcome"})
    header.emplace_back(name);
  Table table(header);
  BytesScale scale;
  for (const ZeroFigures& f : zero_figures(records)) scale.see(f.peak_bytes);
  for (const ZeroFigures& f : zero_figures(records)) {
    const Record& record = *f.record;
    std::string step = shown_ms(f.step_ms);
    if (record.simulated && f.ok) step += "*";
    std::vector<std::string> cells = {
        record.label, f.tokens_per_second ? fmt::format("{:.0f}", *f.tokens_per_second) : "-",
        f.tokens_deviation ? fmt::format("{:.0f}", *f.tokens_deviation) : "-", step,
        shown_percent(nvml ? f.utilisation : f.computing)};
    if (rated) cells.push_back(shown_percent(in_percent(record.mfu)));
    cells.insert(
        cells.end(),
        {scale.show(f.peak_bytes), scale.show(f.mean_bytes), shown_ms(f.communication_ms),
         shown_percent(in_percent(f.communication_share)), shown_percent(in_percent(f.data_share)),
         shown_ms(record.data.loader_busy_ms),
         record.end_to_end_seconds ? fmt::format("{:.1f} s", *record.end_to_end_seconds) : "-",
         outcome_words(record)});
    table.row(std::move(cells));
  }
  return table;
}

std::string zero_csv(const std::vector<Record>& records) {
  Table table({"strategy",
               "batch_size",
               "accumulation",
               "world",
               "seq_length",
               "outcome",
               "communication_modelled",
               "tokens_per_second",
               "tokens_per_second_std",
               "step_ms",
               "step_std_ms",
               "gpu_utilisation_percent",
               "computing_percent",
               "mfu",
               "peak_memory_bytes",
               "mean_memory_bytes",
               "communication_total_ms",
               "communication_exposed_share",
               "gather_total_ms",
               "gather_exposed_ms",
               "gather_bytes",
               "reduce_total_ms",
               "reduce_exposed_ms",
               "reduce_bytes",
               "data_share",
               "loader_busy_ms",
               "loader_waited_ms",
               "load_ms",
               "end_to_end_seconds",
               "epoch_seconds",
               "graph",
               "attention",
               "fused_kernels",
               "data",
               "tokenizer",
               "experiment"});
  for (const ZeroFigures& f : zero_figures(records)) {
    const Record& r = *f.record;
    std::vector<std::string> cells = {f.strategy,
                                      std::to_string(f.batch),
                                      std::to_string(f.accumulation),
                                      r.world ? std::to_string(*r.world) : "",
                                      r.seq_length ? std::to_string(*r.seq_length) : "",
                                      r.outcome,
                                      r.simulated ? "true" : "false",
                                      exact(f.tokens_per_second),
                                      exact(f.tokens_deviation),
                                      exact(f.step_ms),
                                      exact(r.std_time_ms),
                                      exact(f.utilisation),
                                      exact(f.computing),
                                      exact(r.mfu),
                                      whole(f.peak_bytes),
                                      whole(f.mean_bytes),
                                      exact(f.communication_ms),
                                      exact(f.communication_share)};
    for (const char* lane : {"gather", "reduce"}) {
      const auto found = r.communication.find(lane);
      const RecordTransfer transfer =
          found == r.communication.end() ? RecordTransfer{} : found->second;
      cells.insert(cells.end(), {exact(total_ms(r, transfer)), exact(exposed_ms(r, transfer)),
                                 whole(transfer.bytes)});
    }
    const std::string epoch =
        r.data.steps_an_epoch && f.step_ms
            ? exact(static_cast<double>(*r.data.steps_an_epoch) * *f.step_ms / 1e3)
            : "";
    cells.insert(cells.end(),
                 {exact(f.data_share), exact(r.data.loader_busy_ms), exact(r.data.loader_waited_ms),
                  exact(r.data.load_ms), exact(r.end_to_end_seconds), epoch, r.graph, r.attention,
                  r.fused_kernels, r.data.source.empty() ? "synthetic" : r.data.source,
                  r.data.tokenizer, r.experiment});
    table.row(std::move(cells));
  }
  return table.csv();
}

}  // namespace veil
