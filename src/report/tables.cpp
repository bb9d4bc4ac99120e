#include "report/tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "report/figures.h"

namespace veil {
namespace {

std::string shown(std::optional<int64_t> number) {
  return number ? std::to_string(*number) : "-";
}

std::string exact(std::optional<double> number) {
  return number ? fmt::format("{}", *number) : "";
}
std::string exact(std::optional<int64_t> number) {
  return number ? std::to_string(*number) : "";
}
// Bytes as whole numbers, not 1.1e+10.
std::string exact_bytes(std::optional<double> bytes) {
  return bytes ? fmt::format("{:.0f}", *bytes) : "";
}

std::optional<double> amount(const Amounts& amounts, const std::string& name) {
  const auto found = amounts.find(name);
  return found == amounts.end() ? std::nullopt : std::optional(found->second);
}

std::vector<const Amounts*> breakdowns(const std::vector<Record>& records) {
  std::vector<const Amounts*> all;
  for (const Record& record : records) all.push_back(&record.breakdown);
  return all;
}

std::vector<std::string> transfer_kinds(const std::vector<Record>& records) {
  Amounts present;
  for (const Record& record : records) {
    for (const auto& [kind, transfer] : record.communication) present[kind] = 1;
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, unused] : present) kinds.push_back(kind);
  return kinds;
}

std::string deviation(const Record& record) {
  return record.std_time_ms && compared_ms(record) ? format_ms(*record.std_time_ms) : "-";
}

}  // namespace

void BytesScale::see(std::optional<double> bytes) {
  largest_ = std::max(largest_, std::abs(bytes.value_or(0)));
}

std::string BytesScale::show(std::optional<double> bytes) const {
  if (!bytes) return "-";
  const bool large = largest_ >= static_cast<double>(kGiB);
  const double amount = *bytes / static_cast<double>(large ? kGiB : kMiB);
  const char* const unit = large ? "GiB" : "MiB";
  if (amount != 0 && std::abs(amount) < 0.00005) return fmt::format("<0.0001 {}", unit);
  // A small amount must not look like zero.
  if (amount != 0 && std::abs(amount) < 0.005) return fmt::format("{:.4f} {}", amount, unit);
  return fmt::format("{:.2f} {}", amount, unit);
}

std::string BytesScale::show_change(std::optional<double> bytes) const {
  return bytes ? fmt::format("{}{}", *bytes < 0 ? "-" : "+", show(std::abs(*bytes))) : "-";
}

bool any_modelled(const std::vector<Record>& records) {
  return std::any_of(records.begin(), records.end(), [](const Record& record) {
    return record.simulated && record.modelled_step_ms && record.ok();
  });
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string shown_bytes(std::optional<double> bytes) {
  return bytes ? format_bytes(static_cast<int64_t>(std::llround(*bytes))) : "-";
}

std::string shown_ms(std::optional<double> ms) {
  return !ms ? "-" : *ms == 0 ? "0 ms" : format_ms(*ms);
}

std::string percent_text(double share) {
  return std::abs(share) < 0.1 ? fmt::format("{:.1f}%", share * 100)
                               : fmt::format("{:.0f}%", share * 100);
}

std::string outcome_words(const Record& record) {
  if (record.outcome == "oom") return "out of memory";
  if (record.outcome == "error") return "failed";
  return record.outcome.empty() ? "-" : record.outcome;
}

Table general_table(const std::vector<Record>& records) {
  // The most important columns first, so that a narrow screen shows them.
  Table table({"set-up", "step", "spread", "peak memory", "after model", "after warm-up",
               "exposed comm.", "host memory", "ranks", "batch", "outcome"});
  BytesScale device, host;
  for (const Record& record : records) {
    for (const MemoryMoment& moment : memory_moments()) device.see(moment.bytes(record));
    host.see(host_bytes(record));
  }
  for (const Record& record : records) {
    std::string step = shown_ms(compared_ms(record));
    if (record.simulated && record.modelled_step_ms && record.ok()) step += "*";
    table.row({record.label, step, deviation(record), device.show(record.peak_memory_bytes),
               device.show(stage_bytes(record, "after model")),
               device.show(stage_bytes(record, "after warm")), shown_ms(exposed_ms(record)),
               host.show(host_bytes(record)), shown(record.world), shown(record.batch_size),
               outcome_words(record)});
  }
  return table;
}

std::string summary_csv(const std::vector<Record>& records) {
  const std::vector<std::string> categories = categories_of(breakdowns(records));
  const std::vector<std::string> kinds = transfer_kinds(records);
  std::vector<const Amounts*> phase_amounts;
  for (const Record& record : records) phase_amounts.push_back(&record.phases);
  const std::vector<std::string> phases = phases_of(phase_amounts);
  std::vector<std::string> header = {"suite",
                                     "experiment",
                                     "title",
                                     "outcome",
                                     "message",
                                     "mode",
                                     "seq_length",
                                     "batch_size",
                                     "total_batch_size",
                                     "num_gpus",
                                     "world",
                                     "simulated",
                                     "device",
                                     "avg_time_ms",
                                     "std_time_ms",
                                     "modelled_step_ms",
                                     "timed_steps",
                                     "last_loss",
                                     "peak_memory_bytes",
                                     "peak_memory_mb",
                                     "peak_memory_gb",
                                     "after_data_bytes",
                                     "after_model_bytes",
                                     "after_warmup_bytes",
                                     "host_memory_bytes",
                                     "graph"};
  for (const std::string& name : categories) header.push_back("peak_" + name + "_bytes");
  for (const std::string& name : phases) header.push_back(name + "_ms");
  for (const std::string& kind : kinds) {
    for (const char* const what : {"_total_ms", "_exposed_ms", "_modelled_ms", "_bytes"})
      header.push_back(kind + what);
  }
  header.insert(header.end(), {"command", "record"});
  Table table(header);
  for (const Record& record : records) {
    const auto& peak = record.peak_memory_bytes;
    const auto in = [&](double unit) {
      return exact(peak ? std::optional(*peak / unit) : std::nullopt);
    };
    std::vector<std::string> cells = {record.suite,
                                      record.experiment,
                                      record.title,
                                      record.outcome,
                                      record.message,
                                      record.mode,
                                      exact(record.seq_length),
                                      exact(record.batch_size),
                                      exact(record.total_batch_size),
                                      exact(record.num_gpus),
                                      exact(record.world),
                                      record.simulated ? "true" : "false",
                                      record.device,
                                      exact(record.avg_time_ms),
                                      exact(record.std_time_ms),
                                      exact(record.modelled_step_ms),
                                      std::to_string(record.times_ms.size()),
                                      record.losses.empty() ? "" : exact(record.losses.back()),
                                      exact_bytes(peak),
                                      in(1e6),
                                      in(1e9),
                                      exact_bytes(stage_bytes(record, "after data")),
                                      exact_bytes(stage_bytes(record, "after model")),
                                      exact_bytes(stage_bytes(record, "after warm")),
                                      exact_bytes(host_bytes(record)),
                                      record.graph};
    for (const std::string& name : categories)
      cells.push_back(exact_bytes(amount(record.breakdown, name)));
    for (const std::string& name : phases) cells.push_back(exact(amount(record.phases, name)));
    for (const std::string& kind : kinds) {
      const auto found = record.communication.find(kind);
      const RecordTransfer transfer =
          found == record.communication.end() ? RecordTransfer{} : found->second;
      cells.insert(cells.end(), {exact(transfer.total_ms), exact(transfer.exposed_ms),
                                 exact(transfer.modelled_ms), exact_bytes(transfer.bytes)});
    }
    cells.insert(cells.end(), {record.command, record.file});
    table.row(std::move(cells));
  }
  return table.csv();
}

Table time_table(const std::vector<Record>& records) {
  Table table({"set-up", "step", "spread", "timed steps", "fastest", "slowest"});
  for (const Record& record : records) {
    const auto& times = record.times_ms;
    const bool any = !times.empty();
    table.row({record.label, record.ok() ? shown_ms(compared_ms(record)) : outcome_words(record),
               deviation(record), std::to_string(times.size()),
               any ? format_ms(*std::min_element(times.begin(), times.end())) : "-",
               any ? format_ms(*std::max_element(times.begin(), times.end())) : "-"});
  }
  return table;
}

Table stage_table(const std::vector<Record>& records) {
  std::vector<std::string> header = {"set-up"};
  for (const MemoryMoment& moment : memory_moments()) header.emplace_back(moment.name);
  Table table(header);
  BytesScale scale;
  for (const Record& record : records) {
    for (const MemoryMoment& moment : memory_moments()) scale.see(moment.bytes(record));
  }
  for (const Record& record : records) {
    std::vector<std::string> cells = {record.label};
    for (const MemoryMoment& moment : memory_moments())
      cells.push_back(scale.show(moment.bytes(record)));
    table.row(cells);
  }
  return table;
}

Table breakdown_table(const std::vector<Record>& records) {
  const std::vector<std::string> categories = categories_of(breakdowns(records));
  std::vector<std::string> header = {"set-up"};
  for (const std::string& name : categories) header.push_back(spaced(name));
  Table table(header);
  BytesScale scale;
  for (const Record& record : records) {
    for (const auto& [name, bytes] : record.breakdown) scale.see(bytes);
  }
  for (const Record& record : records) {
    std::vector<std::string> cells = {record.label};
    for (const std::string& name : categories)
      cells.push_back(scale.show(amount(record.breakdown, name)));
    table.row(cells);
  }
  return table;
}

Table phase_table(const std::vector<Record>& records) {
  const std::vector<std::string> names = step_parts_of(records);
  std::vector<std::string> header = {"set-up"};
  for (const std::string& name : names) header.push_back(spaced(name));
  Table table(header);
  for (const Record& record : records) {
    const Amounts parts = step_parts(record);
    std::vector<std::string> cells = {record.label};
    for (const std::string& name : names) cells.push_back(shown_ms(amount(parts, name)));
    table.row(cells);
  }
  return table;
}

Table row_table(const Record& record) {
  Table table({"part", "row", "operation", "on", "after", "peak"});
  BytesScale scale;
  for (const RecordRow& row : record.memory_rows) scale.see(row.peak_bytes);
  for (const RecordRow& row : record.memory_rows) {
    double total = 0;
    for (const auto& [name, bytes] : row.after) total += bytes;
    table.row({row.part, std::to_string(row.row), row.op, row.on, scale.show(total),
               scale.show(row.peak_bytes)});
  }
  return table;
}

Table communication_table(const std::vector<Record>& records) {
  Table table({"set-up", "kind", "total", "exposed", "modelled", "a step moves"});
  BytesScale scale;
  for (const Record& record : records) {
    for (const auto& [kind, transfer] : record.communication) scale.see(transfer.bytes);
  }
  for (const Record& record : records) {
    for (const auto& [kind, transfer] : record.communication) {
      table.row({record.label, kind, shown_ms(transfer.total_ms),
                 shown_ms(exposed_ms(record, transfer)), shown_ms(transfer.modelled_ms),
                 scale.show(transfer.bytes)});
    }
  }
  return table;
}

}  // namespace veil
