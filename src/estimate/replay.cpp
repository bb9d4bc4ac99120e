#include "estimate/replay.h"

#include <algorithm>

namespace veil {

ModelledStep modelled_step(const StepTime& step, const Schedule& schedule) {
  constexpr int kCompute = static_cast<int>(Lane::compute);
  ModelledStep result;
  double lane_end[kLanes] = {};
  std::vector<double> ends;
  int part = -1, micro_batch = -1;
  auto waited = [&](int lane, double ms) {
    if (lane != kCompute && ms > 0) result.exposed_ms[name_of(static_cast<Lane>(lane))] += ms;
  };
  // A part ends when all lanes have ended: compute waits for the last of them.
  auto join = [&] {
    const double* const last = std::max_element(lane_end, lane_end + kLanes);
    const double joined = *last;
    waited(static_cast<int>(last - lane_end), joined - lane_end[kCompute]);
    std::fill(lane_end, lane_end + kLanes, joined);
    return joined;
  };
  for (const RowTime& row : step.rows) {
    if (row.part != part || row.micro_batch != micro_batch) {
      const double joined = join();
      part = row.part;
      micro_batch = row.micro_batch;
      ends.assign(schedule.parts[part].size(), joined);
    }
    const Op& op = schedule.parts[row.part][row.op];
    double& end = lane_end[static_cast<int>(op.lane)];
    double begin = end;
    int latest = kCompute;
    for (int earlier : op.after) {
      if (ends[earlier] <= begin) continue;
      begin = ends[earlier];
      latest = static_cast<int>(schedule.parts[part][earlier].lane);
    }
    if (op.lane == Lane::compute) waited(latest, begin - end);
    const bool modelled = op.lane == Lane::gather || op.lane == Lane::reduce;
    end = begin + (modelled ? row.modelled_ms : row.ms());
    ends[row.op] = end;
  }
  result.ms = join();
  return result;
}

}  // namespace veil
