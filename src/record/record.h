// The record of one measured experiment: `veil profile` writes it, suites add to it, reports read
// it. Its JSON keys do not change. Some values are written twice: in exact units and under names
// that other profilers of private training use ("peak_memory_gb", "cuda_memory_allocated_GB").
//
// Reading is tolerant: a record must be JSON of the expected types, and must hold a time and a peak
// memory if its outcome is "ok". Everything else may be missing and stays empty.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "record/fields.h"

namespace veil {

struct CategoryBytes;  // profile/memory.h
struct StageMemory;    // profile/stage.h

// One rank's memory line at a stage of the run.
struct RecordStage {
  std::string stage;
  int64_t rank = 0;
  std::string device = "";
  std::optional<double> allocated_bytes = {}, max_allocated_bytes = {}, reserved_bytes = {},
                        max_reserved_bytes = {};
  std::optional<double> host_bytes = {};  // resident memory of the process
  std::optional<double> outside_allocator_bytes = {};
  std::map<std::string, Amounts> by_category = {}, peak_by_category = {};  // by space
};
RecordStage stage_line(const StageMemory& memory);

// The end of a phase of the step: bytes after its last row, and at its highest moment.
struct RecordSnapshot {
  std::string stage;  // "step: forward"
  std::optional<double> allocated_bytes, peak_bytes;
  Amounts breakdown, peak_breakdown;
};

// Memory after one row of the schedule.
struct RecordRow {
  std::string part, op, on;
  int64_t row = 0;
  Amounts after;
  std::optional<double> peak_bytes;  // while it ran
};

// Communication of one kind: a step's mean.
struct RecordTransfer {
  std::optional<double> total_ms, exposed_ms, modelled_ms, modelled_exposed_ms, bytes;
};

struct RecordRank {
  int64_t rank = 0;
  std::optional<double> avg_time_ms, peak_memory_bytes, memory_mean_bytes, utilisation_percent;
};

// Text that the steps read; no source: synthetic tokens.
struct RecordData {
  std::string source, tokenizer;
  std::optional<int64_t> documents, tokens, samples, steps_an_epoch;
  // Means of a step; load is the wait for a batch and its way to the device.
  std::optional<double> loader_busy_ms, loader_waited_ms, load_ms;
};

struct RecordPrecision {
  std::string storage, compute, reduce, moments;
  bool tf32 = false, deterministic = false;
};

// How a private step clips.
struct RecordClip {
  std::string pass_plan, function;
  std::optional<double> clip_norm, sigma;
  std::optional<int64_t> tile;
  std::optional<int64_t> combine_every;                    // micro-batches, if several
  std::vector<std::pair<std::string, std::string>> rules;  // of each parameter
};

struct RecordDiffusion {
  std::optional<int64_t> image_size, patch_size, in_channels, num_classes, hidden_dim, num_layers,
      num_heads, tokens;
};

// Means over the timed steps, of rank 0's GPU.
struct RecordGpu {
  std::optional<double> utilisation_percent, sm_clock_mhz, temperature_c, power_w;
};

// Shares of all CPUs' time while it ran, used by this experiment and by other work.
struct RecordCpu {
  std::optional<double> others_percent, own_percent;
};

struct RecordKernel {
  std::string name;
  bool on_gpu = false;
  int64_t calls = 0;
  double total_ms = 0;
};

struct RecordRepeat {
  std::optional<double> avg_time_ms, std_time_ms;
};

struct Record {
  std::string file = "";   // its name in the folder it was read from
  std::string label = "";  // how tables and plots call it; unique in its folder

  // What was measured.
  std::string outcome = "", message = "", mode = "", device = "", rng = "";
  std::optional<std::vector<std::string>> remedies = {};  // out of memory: what needs less
  std::optional<int64_t> oom_rank = {};                   // the rank that ran out of memory alone
  std::optional<int64_t> seq_length = {}, batch_size = {}, total_batch_size = {}, num_gpus = {},
                         world = {};
  bool simulated = false;
  std::optional<RecordPrecision> precision = {};
  nlohmann::json build = {}, machine = {};
  std::optional<RecordDiffusion> diffusion = {};
  std::string task = "", attention = "", fused_kernels = "", graph = "";
  std::optional<int64_t> vocab_size = {}, parameters = {};
  std::optional<std::vector<std::string>> notices = {};
  std::optional<std::string> weights = {};  // where they come from, as of weights_text
  std::optional<RecordClip> clip = {};

  // Time.
  std::vector<double> times_ms = {};
  std::optional<double> avg_time_ms = {}, std_time_ms = {}, phase_sum_ms = {};
  // Of a simulated world: computing measured, communication as a link of this speed carries it.
  std::optional<double> modelled_step_ms = {}, link_gb_per_s = {};
  std::optional<double> predicted_step_ms = {};  // before the run (estimate/time_estimate.h)
  Amounts phases = {}, layer_ms = {};
  std::map<std::string, RecordTransfer> communication = {};
  std::optional<double> end_to_end_seconds = {}, tokens_per_second = {},
                        tflops_per_second_a_rank = {}, mfu = {};
  std::string mfu_convention = "";
  std::vector<std::optional<double>> losses = {};  // nothing if the loss was not a number
  RecordGpu gpu_state = {};
  RecordData data = {};

  // Memory.
  std::vector<RecordStage> stages = {};
  std::optional<std::vector<RecordSnapshot>> step_snapshots = {};  // of a run that finished
  std::optional<double> peak_memory_bytes = {}, pinned_peak_bytes = {}, estimated_peak_bytes = {},
                        memory_mean_bytes = {};
  Amounts breakdown = {};
  std::vector<RecordRow> memory_rows = {};

  std::vector<RecordRank> ranks = {};
  std::optional<std::vector<RecordKernel>> kernels = {};
  std::vector<std::string> traces = {};  // relative to the record's folder

  std::string command = "";
  nlohmann::json config = {};  // every option's value

  // What a suite adds.
  nlohmann::ordered_json gpu_before = {};  // the GPUs before the measurement (suite/settle.h)
  RecordCpu cpu_during = {};
  std::string suite = "", experiment = "", title = "";
  std::optional<int64_t> order = {};
  std::vector<std::string> arguments = {};  // of `veil profile`
  std::vector<RecordRepeat> repeats = {};   // if several measurements were merged

  bool ok() const { return outcome.empty() || outcome == "ok"; }
  // What was outside its bounds on the GPUs before the measurement; "" for nothing.
  std::string gpu_outside() const;
};

nlohmann::ordered_json to_json(const Record& record);
// DamagedRecordError if a value has another type, or if it says "ok" and holds no time or no
// peak memory.
Record record_from_json(const nlohmann::ordered_json& json);

nlohmann::ordered_json to_json(const RecordStage& stage);
nlohmann::ordered_json to_json(const StageMemory& memory);
RecordCpu cpu_from_json(const nlohmann::ordered_json& json);
Amounts amounts_of(const CategoryBytes& bytes);  // categories without any are left out

// Phases as a step has them: by name, then the gap, then the wait for data.
std::vector<std::pair<std::string, double>> phases_in_order(const Record& record);

}  // namespace veil
