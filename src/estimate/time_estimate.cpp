#include "estimate/time_estimate.h"

#include <algorithm>

#include "estimate/replay.h"

namespace veil {
namespace {

// A ring collective of this row.
double collective_ms(const Op& op, const Schedule& schedule, int64_t batch,
                     const SimulatedLink& link) {
  const StepOptions& options = schedule.options;
  const auto bytes = static_cast<double>(message_bytes(op, schedule, batch));
  const int rounds = op.kind == OpKind::reduce && options.strategy == Strategy::ddp ? 2 : 1;
  return rounds * (options.world - 1) * (link.latency_s + bytes / link.bandwidth_bytes_per_s) * 1e3;
}

}  // namespace

std::string TimeEstimate::bound() const {
  const std::pair<double, const char*> parts[] = {{compute_ms, "compute"},
                                                  {memory_ms, "memory"},
                                                  {launches_ms, "launches"},
                                                  {network_ms, "network"},
                                                  {copies_ms, "copies"}};
  return std::max_element(std::begin(parts), std::end(parts))->second;
}

TimeEstimate estimate_time(const Schedule& schedule, const ModelShape& shape,
                           const StepPrices& prices) {
  const StepWork step(schedule, shape, prices.noise);
  const MachinePrices& machine = prices.machine;
  TimeEstimate estimate;
  StepTime times;
  auto play = [&](Part part, int micro_batch) {
    const std::vector<Op>& ops = schedule.part(part);
    for (size_t i = 0; i < ops.size(); ++i) {
      RowTime row;
      row.part = static_cast<int>(part);
      row.op = static_cast<int>(i);
      row.micro_batch = micro_batch;
      row.lane = static_cast<int>(ops[i].lane);
      if (ops[i].lane == Lane::gather || ops[i].lane == Lane::reduce) {
        row.modelled_ms = collective_ms(ops[i], schedule, shape.batch, prices.link);
        times.rows.push_back(row);
        continue;
      }
      const Work work = step.of(ops[i]);
      row.end_ms = machine.seconds_of(work) * 1e3;
      times.rows.push_back(row);
      if (ops[i].lane != Lane::compute) continue;
      for (const auto& entry : names(Amount{})) {
        const double ms =
            work[entry.value] * machine.seconds[static_cast<size_t>(entry.value)] * 1e3;
        switch (bound_of(entry.value)) {
          case Bound::compute:
            estimate.compute_ms += ms;
            break;
          case Bound::memory:
            estimate.memory_ms += ms;
            break;
          case Bound::launches:
            estimate.launches_ms += ms;
            break;
        }
      }
    }
  };
  // A step like those before and after it.
  const int micro_batches = schedule.options.micro_batches;
  play(schedule.defers_update ? Part::turn : Part::prologue, 0);
  for (int m = 0; m < micro_batches; ++m) {
    if (m > 0 || !schedule.defers_update) play(Part::body, m);
    if (schedule.sums_after(m, micro_batches)) play(Part::sums, m / schedule.combine_every);
  }
  if (!schedule.defers_update) play(Part::tail, 0);
  const ModelledStep replayed = modelled_step(times, schedule);
  estimate.ms = replayed.ms;
  for (const auto& [lane, ms] : replayed.exposed_ms)
    (lane == name_of(Lane::copy) ? estimate.copies_ms : estimate.network_ms) += ms;
  estimate.low_ms = estimate.ms / (1 + machine.spread);
  estimate.high_ms = estimate.ms * (1 + machine.spread);
  return estimate;
}

}  // namespace veil
