// What a suite is. One entry in suites() (suite.cpp) each; the larger ones have a file of their own.
#pragma once

#include <string>
#include <vector>

#include "cli/experiment_options.h"
#include "suite/dit.h"
#include "suite/modes.h"
#include "suite/zero.h"

namespace veil {

struct SuiteCommand {
  ExperimentOptions experiment;
  ZeroGrid zero;
  DitGrid dit;
  ModeGrid modes;
  bool use_flash = false, use_bookkeeping = false, use_cpu = false;  // seed 001's words
  std::string output_dir = "results", resume, token;
  int repeat = 1;
  std::optional<double> timeout_s;
  double max_temperature_c = GpuBounds{}.max_temperature_c;
  bool dry_run = false, json = false;
};

// One question: its options and how they become experiments.
struct Suite {
  std::string name, help;
  void (*set_defaults)(SuiteCommand& command);
  void (*add_options)(Options& options, SuiteCommand& command);  // beside those of a step and of measuring
  std::vector<PlannedExperiment> (*plan)(const Options& options,
                                         SuiteCommand& command);  // UserError for what could not be run
};

Suite llama3_suite();
Suite bottlenecks_suite();
Suite dit_suite_entry();

// The options that every suite has and no experiment gets, and more of them.
std::vector<std::string> and_own(std::vector<std::string> names);
// UserError where the ranks, the batch and the machine do not go together.
void check_world(const SuiteCommand& command);
// --mode and --seq-length as lists, and the rest of a private step's options.
void add_mode_grid(Options& options, SuiteCommand& command);
bool runs_on_gpu(const SuiteCommand& command);
// A large model and no GPU, and nobody asked for the CPU: MissingBackend in one line that names the tiny preset.
void offer_tiny(const SuiteCommand& command, const std::string& suite);

}  // namespace veil
