// What a step's time went to: phases of the compute lane, and communication by kind, total and
// exposed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profile/timeline.h"
#include "step/schedule.h"

namespace veil {

// The name of the phase that a row belongs to; the passes of a private step are distinguished.
std::string phase_of(const Op& op, const Schedule& schedule);

struct LaneTime {
  double total_ms = 0;     // on its own lane
  double exposed_ms = 0;   // while compute waited for it
  double modelled_ms = 0;  // simulated worlds
  int64_t bytes = 0;       // that this rank sent
};

// Means over steps, in milliseconds per step.
struct PhaseTimes {
  std::map<std::string, double> compute_ms;  // by phase: forward, backward, update, ...
  double gap_ms = 0;                      // compute idle without waiting for another lane: launches
  std::map<std::string, LaneTime> lanes;  // gather, reduce, copy
  double step_ms = 0;
  std::map<std::string, double> row_ms;  // "forward layers.3": with layers on request
  // Compute, waits and gaps add up to the step.
  double sum_ms() const;
};

PhaseTimes summarise(const std::vector<StepTime>& steps, const Schedule& schedule,
                     const ModelShape& shape);

}  // namespace veil
