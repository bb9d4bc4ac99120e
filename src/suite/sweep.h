// Experiments one after another, each in a process of its own, each leaving one record.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace veil {

struct PlannedExperiment {
  std::string name;                    // "fsdp_memory": the record's file is <name>_result.json
  std::string title;                   // for people
  std::vector<std::string> arguments;  // of `veil profile`, without its outputs
};

struct SweepOptions {
  std::string folder;
  std::string suite;
  bool resume = false;  // an experiment that has an ok record is not run again
  bool quiet = false;   // the experiments' own output goes to <name>.log instead of the terminal
};

struct SweepResult {
  std::vector<nlohmann::ordered_json> records;  // in the order of the plan; each has experiment, title and outcome
  int failed = 0, out_of_memory = 0, skipped = 0;
};

// An experiment that fails leaves a record with outcome "error" and its last words; the sweep goes on.
SweepResult run_sweep(
    const std::vector<PlannedExperiment>& plan, const SweepOptions& options,
    const std::function<void(int index, const PlannedExperiment&, const nlohmann::ordered_json* record)>& on_change);

std::string record_path(const std::string& folder, const std::string& name);
// results/run_YYYYMMDD_HHMMSS, which is not there yet; and the same, made.
std::string unused_run_folder(const std::string& parent);
std::string new_run_folder(const std::string& parent);
// The newest of them. UserError if there is none.
std::string newest_run_folder(const std::string& parent);
// This program's own file.
std::string own_program();

}  // namespace veil
