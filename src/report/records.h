// The records of a folder (design: Records), as values. Little is required of a record: that it is JSON of known types, and that it holds a time and a peak memory
// where it says that all went well. What else is not there stays empty and is shown as "-".
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace veil {

using Amounts = std::map<std::string, double>;  // bytes by category, or milliseconds by phase

// One rank's memory line at a stage of the run.
struct RecordStage {
  std::string stage;
  int64_t rank = 0;
  std::optional<double> allocated_bytes, max_allocated_bytes, host_bytes;  // host: resident memory of the process
};

// Memory after one row of the schedule.
struct RecordRow {
  std::string part, op, on;
  int64_t row = 0;
  Amounts after;
  std::optional<double> peak_bytes;  // while it ran
};

struct RecordTransfer {
  std::optional<double> total_ms, exposed_ms, modelled_ms, modelled_exposed_ms, bytes;  // a step
};

struct RecordRank {
  int64_t rank = 0;
  std::optional<double> avg_time_ms, peak_memory_bytes, memory_mean_bytes;
};

// Text that the steps read; no source: synthetic tokens.
struct RecordData {
  std::string source, tokenizer;
  std::optional<double> loader_busy_ms, loader_waited_ms,
      load_ms;  // a step; load is the wait and the way to the device
  std::optional<int64_t> steps_an_epoch;
};

struct Record {
  std::string file;   // its name in the folder
  std::string label;  // how tables and plots call it; no two records of a folder have the same
  std::string suite, experiment, title, outcome, message, mode, device, command, graph, attention, fused_kernels;
  std::optional<int64_t> order, seq_length, batch_size, total_batch_size, num_gpus, world;
  bool simulated = false;
  std::optional<double> peak_memory_bytes, avg_time_ms, std_time_ms, modelled_step_ms, link_gb_per_s;
  std::optional<double> sm_clock_mhz;        // mean over the timed steps
  std::string gpu_outside;                   // what was outside its bounds when it began; "" for nothing
  std::optional<double> cpu_others_percent;  // of the CPUs, used by other work while it ran
  std::optional<double> tokens_per_second, mfu, utilisation_percent, memory_mean_bytes, end_to_end_seconds;
  RecordData data;
  std::vector<double> times_ms;
  std::vector<std::optional<double>> losses;  // nothing where the loss was no number
  std::vector<RecordStage> stages;
  Amounts breakdown, phases;
  std::vector<RecordRow> memory_rows;
  std::map<std::string, RecordTransfer> communication;
  std::vector<RecordRank> ranks;
  std::vector<std::string> traces;  // relative to the folder
  nlohmann::json config, build, machine;

  bool ok() const { return outcome.empty() || outcome == "ok"; }
};

struct DamagedRecord {
  std::string file, reason;
};

struct RecordFolder {
  std::string folder;
  std::vector<Record> records;  // by `order` where they have one, then by file name
  std::vector<DamagedRecord> damaged;
};

// Reads every *_result.json that lies in the folder. UserError if there is none, or none that can be read.
RecordFolder read_records(const std::string& folder);

// Allocated bytes at a stage whose name starts so, of the rank that holds most.
std::optional<double> stage_bytes(const Record& record, const std::string& stage);
std::optional<double> host_bytes(const Record& record);  // the largest resident memory of a rank at any stage
// Communication of a kind that nothing hid; in a simulated world the modelled one where it is recorded.
std::optional<double> exposed_ms(const Record& record, const RecordTransfer& transfer);
std::optional<double> exposed_ms(const Record& record);  // all kinds
// "ddp", "zero3", ... as the settings have it, in whichever spelling; "" if they do not say.
std::string strategy_of(const Record& record);

// Names that occur in any of the amounts, known ones first in the ledger's order (or a step's), then the others by name.
std::vector<std::string> categories_of(const std::vector<const Amounts*>& amounts);
std::vector<std::string> phases_of(const std::vector<const Amounts*>& amounts);

}  // namespace veil
