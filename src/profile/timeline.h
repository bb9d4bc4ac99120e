// When each row of a step ran. Rows of the compute lane and the waits between them add up to the
// step.
#pragma once

#include <vector>

namespace veil {

struct RowTime {
  int part = 0, op = 0;             // the row of the schedule
  int micro_batch = 0;              // of a body's row
  int lane = 0;                     // 0 is compute
  double begin_ms = 0, end_ms = 0;  // since the step began
  double wait_ms = 0;  // compute rows: from the end of the row before to the begin of this one
  // backward and loss rows, if requested: inside, what its reports took
  double reports_ms = 0;
  double modelled_ms = 0;  // simulated worlds: what the collective would take
  double ms() const { return end_ms - begin_ms; }
};

struct StepTime {
  double total_ms = 0;
  std::vector<RowTime> rows;
};

}  // namespace veil
