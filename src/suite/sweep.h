// Runs experiments one after another, each in a process of its own, each writing one record.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "record/record.h"
#include "suite/settle.h"

namespace veil {

// One measurement by `veil profile`.
struct Experiment {
  std::string name;                    // "fsdp_memory": the record's file is <name>_result.json
  std::string title;                   // for people
  std::vector<std::string> arguments;  // of `veil profile`, without its outputs
  std::string group = "";  // experiments that are compared with each other run side by side
};

struct SweepOptions {
  std::string folder;
  std::string suite;
  bool resume = false;              // experiments that have an ok record are not run again
  int repeat = 1;                   // measurements of each experiment
  std::optional<double> timeout_s;  // of one measurement
  std::vector<std::string> words;  // the suite's arguments, so that a resumed sweep needs no others
  GpuBounds bounds;
  Settling settling = real_gpus();
};

struct SweepResult {
  std::vector<Record> records;  // in the order of the experiments
  int failed = 0, out_of_memory = 0, skipped = 0;
  bool interrupted = false;  // stopped by the user; `records` are those that were finished
};

// One measurement: which experiment, and which of its repeats.
struct Turn {
  size_t experiment;
  int repeat;
};
// Repeat by repeat, in each group by group, every second repeat backwards: if the machine becomes
// warm or slow, this affects all that are compared.
std::vector<Turn> turns_of(const std::vector<Experiment>& experiments, int repeat);

// An experiment that fails gets a record with outcome "error" and the last line of its output; the
// sweep continues. `on_change` is called before each measurement (no record) and after it; `turn`
// counts all of them. Records are written atomically, whatever ends the sweep.
using OnChange = std::function<void(int turn, const Experiment&, const Record* record)>;
SweepResult run_sweep(const std::vector<Experiment>& experiments, const SweepOptions& options,
                      const OnChange& on_change);

// The suite and the arguments of the sweep in this folder; nothing if the folder has none.
struct AskedSweep {
  std::string suite;
  std::vector<std::string> words;
};
std::optional<AskedSweep> asked_sweep(const std::string& folder);
// The path of this program.
std::string own_program();

}  // namespace veil
