// A schedule's milliseconds without running it: the rows' work at a machine's prices, their lanes
// and waits replayed.
#pragma once

#include "comm/communicator.h"
#include "estimate/machine_prices.h"

namespace veil {

// What a step is priced by: a machine, the link that carries the collectives of a world larger than
// one, and the generator that a private step draws its noise from.
struct StepPrices {
  MachinePrices machine;
  SimulatedLink link = {};
  NoiseGenerator noise = NoiseGenerator::hardened;
};

struct TimeEstimate {
  double ms = 0, low_ms = 0, high_ms = 0;  // nine of ten steps lie between the last two
  // where the compute lane's time goes, and how long it waits for the others
  double compute_ms = 0, memory_ms = 0, launches_ms = 0, network_ms = 0, copies_ms = 0;
  std::string bound() const;  // the largest of them
};

TimeEstimate estimate_time(const Schedule& schedule, const ModelShape& shape,
                           const StepPrices& prices);

}  // namespace veil
