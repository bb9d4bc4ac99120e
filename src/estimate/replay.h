// A step's rows played on their lanes, with the times that they have or would have.
#pragma once

#include <map>
#include <string>

#include "profile/timeline.h"
#include "step/schedule.h"

namespace veil {

// The step if every collective took its modelled time and every other row its own.
struct ModelledStep {
  double ms = 0;
  std::map<std::string, double> exposed_ms;  // by lane: while compute waited for it
};
ModelledStep modelled_step(const StepTime& step, const Schedule& schedule);

}  // namespace veil
