// ZeRO 2 or ZeRO 3: strategies by batch size by gradient accumulation, on a language model
// (docs/zero.md says what each figure means).
#pragma once

#include "suite/suite.h"

namespace veil {

// Each combination is an experiment.
struct ZeroGrid {
  std::vector<Strategy> strategies = {Strategy::zero2, Strategy::zero3};
  std::vector<int64_t> batch_sizes = {2, 4, 8, 16};  // samples per rank and micro-batch
  std::vector<int64_t> accumulations = {1, 2, 4};    // micro-batches in a logical batch
};

// Names like zero2_bs4_ga2. UserError for a value that is given twice.
std::vector<Experiment> zero_experiments(const ZeroGrid& grid,
                                         const std::vector<std::string>& common);

// One configuration's figures. Times are a step's; in a simulated world those of the modelled step.
struct ZeroFigures {
  const Record* record = nullptr;
  std::string strategy;
  int64_t batch = 0, accumulation = 1;
  bool ok = false;
  std::optional<double> tokens_per_second, tokens_deviation, step_ms;
  std::optional<double> peak_bytes, mean_bytes;  // of the rank that holds most
  std::optional<double> communication_ms,
      communication_share;           // gather and reduce: total, and the exposed share of a step
  std::optional<double> data_share;  // of a step: waiting for a batch and bringing it to the device
  std::optional<double> utilisation;  // percent, NVML
  std::optional<double> computing;    // percent of a step in which the compute lane computed
};
std::vector<ZeroFigures> zero_figures(const std::vector<Record>& records);

Table zero_table(const std::vector<Record>& records);
std::string zero_csv(const std::vector<Record>& records);
std::vector<Plot> zero_plots(const std::vector<Record>& records);
// "communication modelled at 200 GB/s", or "" if it was measured.
std::string modelled_words(const std::vector<Record>& records);

}  // namespace veil
