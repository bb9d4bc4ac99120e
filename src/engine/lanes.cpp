#include "engine/lanes.h"

#include "base/error.h"
#include "kernels/squared_norm.h"

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

Lanes::Lanes(const ExecutorContext& context, UnitBuffers& units, Tensor knobs,
             const ClipState* clip)
    : context_(context), units_(units), knobs_(std::move(knobs)), clip_(clip) {}

std::vector<PendingPtr> Lanes::run(const Op& op, bool timed) {
  const Ranks& ranks = context_.ranks;
  if (op.kind == OpKind::exchange) {
    if (op.unit >= 0)
      return {ranks.reduce->all_to_all(units_.kept(op.unit), units_.received(op.unit))};
    return {ranks.reduce->all_gather(clip_->coefficients_of_place(ranks.rank()),
                                     clip_->coefficients_together())};
  }
  if (op.unit < 0) return {ranks.reduce->all_reduce(knob(knobs_, &StepKnobs::squared_norm))};
  UnitTensors& unit = units_[op.unit];
  switch (op.kind) {
    case OpKind::gather: {
      if (unit.whole.defined() && !context_.options.step.offload_params)
        units_.cast_own_shard(op.unit);
      const Tensor& whole = unit.whole.defined() ? unit.whole : unit.params;
      return {ranks.gather->all_gather(context_.own_part(whole, op.unit), whole)};
    }
    case OpKind::reduce: {
      // ddp: a reduce-scatter and a gather, so that all strategies add in the same order
      const bool in_place = !unit.grad.defined();
      const Tensor& local = in_place ? unit.grad_shard : unit.grad;
      if (unit.wire.defined()) unit.wire.copy_(local);
      const Tensor& sent = unit.wire.defined() ? unit.wire : local;
      if (!in_place)
        return {ranks.reduce->reduce_scatter(
            sent, unit.reduced.defined() ? unit.reduced : unit.grad_shard)};
      const Tensor own = context_.own_part(sent, op.unit);
      PendingPtr scattered = ranks.reduce->reduce_scatter(sent, own);
      return {scattered, ranks.reduce->all_gather(own, sent)};
    }
    case OpKind::copy_in:
    case OpKind::copy_out:
      return {copy(op, timed)};
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("{} runs on the compute lane", name_of(op.kind)));
  }
}

PendingPtr Lanes::copy(const Op& op, bool timed) {
  UnitTensors& unit = units_[op.unit];
  auto copy = std::make_shared<Copy>(context_.device, timed);
  Marker now = Marker::ordering(context_.device);
  now.record();
  StreamGuard guard(context_.copy);
  now.wait();
  copy->start();
  if (op.kind == OpKind::copy_out) {
    if (unit.staged_params.defined()) {
      const Tensor place = unit.staged_params.numel() == unit.params.numel()
                               ? unit.params
                               : context_.own_part(unit.params, op.unit);
      place.copy_(unit.staged_params, true);
    }
    if (unit.staged_optimizer.defined()) unit.optimizer.copy_(unit.staged_optimizer, true);
  } else if (op.note == "params") {
    const Tensor place = unit.params.numel() == unit.whole.numel()
                             ? unit.whole
                             : context_.own_part(unit.whole, op.unit);
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
