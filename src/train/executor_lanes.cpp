// The executor's other lanes: collectives and copies between memories.
#include "base/error.h"
#include "kernels/clip_scale.h"
#include "train/executor.h"
#include "train/executor_state.h"

namespace veil {
namespace {

// A copy between memories, on the copy lane.
class Copy final : public Pending {
 public:
  Copy(Device device, bool timed) : done_(Marker::ordering(device)) {
    if (timed) began_ = Marker::timed(device), ended_ = Marker::timed(device);
  }
  void start() {
    if (!began_.empty()) began_.record();
  }
  void finish() {
    if (!ended_.empty()) ended_.record();
    done_.record();
  }
  void wait() override { done_.wait(); }
  Marker began() const override { return began_; }
  Marker ended() const override { return ended_; }

 private:
  Marker done_, began_, ended_;
};

}  // namespace

// The stored parameters into this rank's place of the gathered buffer, in the compute type.
void Executor::cast_own_shard(int unit) {
  const Tensor& stored = units_[unit].params;
  const Tensor& whole = units_[unit].whole;
  const Tensor place = stored.numel() == whole.numel() ? whole : own_part(whole, unit);
  place.copy_(stored, /*non_blocking=*/true);
}

std::vector<PendingPtr> Executor::run_lane(const Op& op) {
  if (op.unit < 0) return {ranks_.reduce->all_reduce(knobs_.narrow(0, kSquaredNormKnob, 1))};
  Unit& unit = units_[op.unit];
  switch (op.kind) {
    case OpKind::gather: {
      if (unit.whole.defined() && !options_.step.offload_params) cast_own_shard(op.unit);
      const Tensor& whole = unit.whole.defined() ? unit.whole : unit.params;
      return {ranks_.gather->all_gather(own_part(whole, op.unit), whole)};
    }
    case OpKind::reduce: {
      const bool in_place =
          !unit.grad.defined();  // ddp: a reduce-scatter and a gather, so that all strategies add in the same order
      const Tensor& local = in_place ? unit.grad_shard : unit.grad;
      if (unit.wire.defined()) unit.wire.copy_(local);
      const Tensor& sent = unit.wire.defined() ? unit.wire : local;
      if (!in_place)
        return {ranks_.reduce->reduce_scatter(sent, unit.reduced.defined() ? unit.reduced : unit.grad_shard)};
      const Tensor own = own_part(sent, op.unit);
      PendingPtr scattered = ranks_.reduce->reduce_scatter(sent, own);
      return {scattered, ranks_.reduce->all_gather(own, sent)};
    }
    case OpKind::copy_in:
    case OpKind::copy_out:
      return {run_copy(op)};
    default:
      check_failed(__FILE__, __LINE__, "not reached", fmt::format("{} runs on the compute lane", name_of(op.kind)));
  }
}

PendingPtr Executor::run_copy(const Op& op) {
  Unit& unit = units_[op.unit];
  auto copy = std::make_shared<Copy>(device_, timers_ != nullptr);
  Marker now = Marker::ordering(device_);
  now.record();
  StreamGuard guard(copy_);
  now.wait();
  copy->start();
  if (op.kind == OpKind::copy_out) {
    if (unit.staged_params.defined()) {
      const Tensor place =
          unit.staged_params.numel() == unit.params.numel() ? unit.params : own_part(unit.params, op.unit);
      place.copy_(unit.staged_params, true);
    }
    if (unit.staged_optimizer.defined()) unit.optimizer.copy_(unit.staged_optimizer, true);
  } else if (op.note == "params") {
    const Tensor place = unit.params.numel() == unit.whole.numel() ? unit.whole : own_part(unit.whole, op.unit);
    if (unit.staged_params.defined()) unit.staged_params.copy_(unit.params, true);
    place.copy_(unit.staged_params.defined() ? unit.staged_params : unit.params, true);
  } else {
    if (unit.staged_params.defined()) unit.staged_params.copy_(unit.params, true);
    if (unit.staged_optimizer.defined()) unit.staged_optimizer.copy_(unit.optimizer, true);
  }
  copy->finish();
  return copy;
}

}  // namespace veil
