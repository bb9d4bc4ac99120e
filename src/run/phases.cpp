#include "run/phases.h"

#include <algorithm>

namespace veil {
namespace {

const Op& op_of(const RowTime& row, const Schedule& schedule) {
  return schedule.parts[row.part][row.op];
}

// A row whose reports were timed in two: itself without them, and what they are for.
struct Split {
  std::string row, reports;
};
Split split_of(const Op& op) {
  const std::string row = op.kind == OpKind::loss ? "loss" : "backward";
  switch (op.use) {
    case GradUse::norm:
    case GradUse::book:
      return {op.kind == OpKind::loss ? row : "first_backward", "norms"};
    case GradUse::keep:
      return {row, "kept_norms"};
    case GradUse::clip:
      return {"second_" + row, "weight_grad"};
    default:
      return {row, "weight_grad"};
  }
}

int64_t sent_bytes(const Op& op, const Schedule& schedule, int64_t batch) {
  const StepOptions& options = schedule.options;
  const int64_t peers = options.world - 1;
  switch (op.kind) {
    case OpKind::gather:
    case OpKind::exchange:
      return peers * message_bytes(op, schedule, batch);
    case OpKind::reduce:
      return peers * message_bytes(op, schedule, batch) *
             (options.strategy == Strategy::ddp ? 2 : 1);
    default: {  // a copy moves what this rank stores, in or out
      const UnitLayout& unit = schedule.layout.units[static_cast<size_t>(op.unit)];
      const bool sharded = options.world > 1 && options.strategy != Strategy::ddp;
      const int64_t numel = sharded ? unit.shard_numel : unit.padded_numel;
      int64_t bytes = options.offload_params ? numel * dtype_bytes(options.storage) : 0;
      if (op.note != "params" && options.offload_optimizer) {
        bytes +=
            optimizer_states(options.optimizer) * numel * dtype_bytes(options.optimizer_state());
      }
      return bytes;
    }
  }
}

}  // namespace

std::string phase_of(const Op& op, const Schedule& schedule) {
  if (!schedule.options.clip) return name_of(op.kind);
  if (op.kind == OpKind::backward) {
    switch (op.use) {
      case GradUse::keep:
        return "backward_and_kept_norms";
      case GradUse::norm:
      case GradUse::book:
        return "backward_and_norms";
      case GradUse::clip:
        return "second_backward";
      default:
        break;
    }
  }
  if (op.kind == OpKind::loss && op.use == GradUse::clip) return "second_loss";
  if (op.kind == OpKind::update)
    return op.note.starts_with("clip") ? "combine_noise_update" : "noise_update";
  return name_of(op.kind);
}

double PhaseTimes::sum_ms() const {
  double sum = gap_ms;
  for (const auto& [phase, ms] : compute_ms) sum += ms;
  for (const auto& [lane, time] : lanes) sum += time.exposed_ms;
  return sum;
}

PhaseTimes summarise(const std::vector<StepTime>& steps, const Schedule& schedule,
                     const ModelShape& shape) {
  PhaseTimes times;
  if (steps.empty()) return times;
  const double share = 1.0 / static_cast<double>(steps.size());
  for (const StepTime& step : steps) {
    times.step_ms += share * step.total_ms;
    double last_end = 0;
    int part = -1, micro_batch = -1;
    // the last operation of another lane that no row of its part has waited for
    const Op* unawaited = nullptr;
    for (const RowTime& row : step.rows) {
      const Op& op = op_of(row, schedule);
      const bool first = row.part != part || row.micro_batch != micro_batch;
      if (op.lane != Lane::compute) {
        LaneTime& lane = times.lanes[name_of(op.lane)];
        lane.total_ms += share * row.ms();
        lane.modelled_ms += share * row.modelled_ms;
        lane.bytes += sent_bytes(op, schedule, shape.batch);
        unawaited = &op;
        continue;
      }
      const auto count = [&](const std::string& phase, double ms) {
        times.compute_ms[phase] += share * ms;
        times.row_ms[phase + " " + op_target(op, schedule, shape)] += share * ms;
      };
      if (row.reports_ms > 0) {
        const Split split = split_of(op);
        count(split.row, row.ms() - row.reports_ms);
        count(split.reports, row.reports_ms);
      } else {
        count(phase_of(op, schedule), row.ms());
      }
      part = row.part;
      micro_batch = row.micro_batch;
      // The wait belongs to the other lane's operation that this row named, if it named one. A part
      // ends when all lanes have ended: the wait before the next part's first row is theirs.
      const Op* waited = nullptr;
      for (int earlier : op.after) {
        const Op& candidate = schedule.parts[row.part][earlier];
        if (candidate.lane != Lane::compute) waited = &candidate;
        if (&candidate == unawaited) unawaited = nullptr;
      }
      if (first && !waited) waited = unawaited;
      if (first) unawaited = nullptr;
      if (waited) {
        times.lanes[name_of(waited->lane)].exposed_ms += share * row.wait_ms;
      } else {
        times.gap_ms += share * row.wait_ms;
      }
      last_end = row.end_ms;
    }
    times.gap_ms += share * (step.total_ms - last_end);
  }
  for (auto& [name, lane] : times.lanes) lane.bytes /= static_cast<int64_t>(steps.size());
  return times;
}

}  // namespace veil
