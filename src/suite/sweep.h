// Experiments one after another, each in a process of its own, each leaving one record.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "suite/settle.h"

namespace veil {

struct PlannedExperiment {
  std::string name;                    // "fsdp_memory": the record's file is <name>_result.json
  std::string title;                   // for people
  std::vector<std::string> arguments;  // of `veil profile`, without its outputs
  std::string group = "";              // experiments that are compared with each other run side by side
};

struct SweepOptions {
  std::string folder;
  std::string suite;
  bool resume = false;              // an experiment that has an ok record is not run again
  int repeat = 1;                   // measurements of each experiment
  std::optional<double> timeout_s;  // of one measurement
  std::vector<std::string> words;   // what the suite was asked for, so that --resume alone can go on
  GpuBounds bounds;
  Settling settling = real_gpus();
};

struct SweepResult {
  std::vector<nlohmann::ordered_json> records;  // in the order of the plan; each has experiment, title and outcome
  int failed = 0, out_of_memory = 0, skipped = 0;
  bool interrupted = false;  // a person stopped it; records are those that were finished
};

// One measurement: which experiment, and which of its repeats.
struct Turn {
  size_t experiment;
  int repeat;
};
// Repeat by repeat, in each group by group, every second repeat backwards: a machine that grows warm or slow does so for all that are compared.
std::vector<Turn> turns_of(const std::vector<PlannedExperiment>& plan, int repeat);

// An experiment that fails leaves a record with outcome "error" and its last words; the sweep goes on. `on_change` hears before each measurement (no record) and after
// it; `turn` counts all of them. A record is written whole under its name or is not there, whatever ends the sweep.
using OnChange = std::function<void(int turn, const PlannedExperiment&, const nlohmann::ordered_json* record)>;
SweepResult run_sweep(const std::vector<PlannedExperiment>& plan, const SweepOptions& options,
                      const OnChange& on_change);

std::string record_path(const std::string& folder, const std::string& name);
// results/run_YYYYMMDD_HHMMSS, which is not there yet; and the same, made.
std::string unused_run_folder(const std::string& parent);
std::string new_run_folder(const std::string& parent);
// The newest of them. UserError if there is none.
std::string newest_run_folder(const std::string& parent);
// What the sweep in this folder was asked for, and of which suite; nothing where it does not say.
struct AskedSweep {
  std::string suite;
  std::vector<std::string> words;
};
std::optional<AskedSweep> asked_sweep(const std::string& folder);
// This program's own file.
std::string own_program();

}  // namespace veil
