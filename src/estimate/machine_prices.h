// What a machine takes for each amount of work: measured on rows of real steps
// (`veil doctor --calibrate`), or known of GPUs that people rent.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "estimate/work.h"

namespace veil {

struct MachinePrices {
  std::string machine;  // "NVIDIA H200 bf16"
  std::string source;   // how they were found, for people
  // Half of the predictions of steps that the prices were not fitted to are off by less than
  // `typical`, nine of ten by less than `spread`: parts of 1.
  double typical = 0, spread = 0;
  std::array<double, kAmounts> seconds = {};  // for 1e9 of an amount, or for one row

  double seconds_of(const Work& work) const;
};

// Rows of a step that were seen to do this work in this time. Rows that do the same are one.
struct Observation {
  Work work;
  double ms = 0;  // of one of them
  int rows = 1;
  int step = 0;  // whose
};

// Prices that explain the observations, none below zero, by least squares: a row counts as much as
// its part of its step, and every step once as a whole. What no observation tells stays as in
// `prior`. Their typical error and spread are found by predicting each step from all others.
MachinePrices fitted_prices(const std::vector<Observation>& observations,
                            const MachinePrices& prior);

// What a GPU or a core is taken for before anything is measured.
MachinePrices assumed_prices(bool on_gpu, DType compute);

// GPUs whose prices come with the program, by the name that `--gpu` takes.
enum class KnownGpu { h200, h100, a100 };
const NameTable<KnownGpu>& names(KnownGpu);
double memory_gib(KnownGpu gpu);  // that a program can use
MachinePrices known_prices(KnownGpu gpu, DType compute);
// Of a processor by its name and the threads that compute: those of one that was measured, its
// computing scaled by the threads.
MachinePrices known_cpu_prices(const std::string& processor, int threads, DType compute);

// The machine's name in a file of prices.
std::string priced_machine(Device device, DType compute);
// From a file that `veil doctor --calibrate` wrote; none if it does not know this machine, is
// damaged, or was written when rows were counted otherwise (kAmountsVersion).
std::optional<MachinePrices> stored_prices(const std::string& path, const std::string& machine);
// Adds to the file, or replaces what it has of this machine.
void store_prices(const std::string& path, const MachinePrices& prices);

// What steps on this device are priced by: what was measured here and is in the file ("": none),
// what is known of such a device, or what is assumed. The source says so if the file has prices that
// cannot be used.
MachinePrices prices_for(const std::string& prices_file, Device device, DType compute);

}  // namespace veil
