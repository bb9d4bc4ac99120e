// The executor beside its steps: evaluation, and the state that a checkpoint holds.
#include "base/error.h"
#include "train/executor.h"
#include "train/executor_state.h"

namespace veil {

Evaluation Executor::evaluate(const Batch& samples) {
  StreamGuard guard(compute_);
  std::unique_ptr<Timers> timers = std::move(timers_);  // a graph's rows are read by markers that nothing may replace
  const Batch training = input_;
  {
    CategoryScope scope(Category::data);
    input_ = samples.each([&](const Tensor& tensor) { return tensor.to(device_); });
  }
  VEIL_CHECK(input_.inputs.size(0) == shape_.batch, "evaluation of {} samples, a micro-batch has {}",
             input_.inputs.size(0), shape_.batch);
  // The rows that lead to the loss; what backward would want is let go at once.
  run_part(Part::prologue, 0);
  const std::vector<Op>& body = schedule_.part(Part::body);
  pending_.assign(body.size(), {});
  Evaluation result;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i].kind == OpKind::load) continue;
    if (body[i].kind == OpKind::loss) {
      for (int earlier : body[i].after) {
        for (const PendingPtr& pending : pending_[earlier]) pending->wait();
      }
      result = model_.loss->evaluate(*params_, flow_.back(), input_);
      break;
    }
    run_op(Part::body, static_cast<int>(i), 0);
    if (body[i].kind == OpKind::forward) tape_[body[i].block] = {};
  }
  join(Part::body);
  result.losses = result.losses.cpu();
  if (result.correct.defined()) result.correct = result.correct.cpu();
  drop_step_buffers();
  input_ = training;
  timers_ = std::move(timers);
  return result;
}

// `count` elements from `first` on (both of the unit) in a buffer that holds the whole unit or this rank's shard of it.
Tensor Executor::place_of(const Tensor& flat, int unit, int64_t first, int64_t count) const {
  const int64_t shard = schedule_.layout.units[unit].shard_numel;
  const bool whole = flat.numel() == schedule_.layout.units[unit].padded_numel;
  return flat.narrow(0, whole ? first : first - ranks_.rank() * shard, count);
}

std::vector<Executor::StatePiece> Executor::state() {
  wait();
  std::vector<StatePiece> pieces;
  for (size_t u = 0; u < units_.size(); ++u) {
    const UnitLayout& layout = schedule_.layout.units[u];
    const int unit = static_cast<int>(u);
    const int64_t first = ranks_.rank() * layout.shard_numel;
    const int64_t count = std::min(layout.shard_numel, layout.numel - first);
    if (count <= 0) continue;
    StatePiece piece{layout.base + first, place_of(units_[u].params, unit, first, count), {}};
    const int states = optimizer_states(options_.optimizer.kind);
    for (int s = 0; s < states; ++s) {
      const int64_t numel = units_[u].optimizer.numel() / states;
      piece.optimizer.push_back(place_of(units_[u].optimizer.narrow(0, s * numel, numel), unit, first, count));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Executor::restore(int64_t steps, const ReadState& read) {
  wait();
  StreamGuard guard(compute_);
  auto fill = [&](int kind, const Tensor& flat, int unit) {
    const UnitLayout& layout = schedule_.layout.units[unit];
    const bool whole = flat.numel() == layout.padded_numel;
    const int64_t first = whole ? 0 : ranks_.rank() * layout.shard_numel;
    const int64_t count = std::min(flat.numel(), layout.numel - first);
    if (count > 0) read(kind, layout.base + first, flat.narrow(0, 0, count));
  };
  for (size_t u = 0; u < units_.size(); ++u) {
    const int unit = static_cast<int>(u), states = optimizer_states(options_.optimizer.kind);
    fill(-1, units_[u].params, unit);
    for (int s = 0; s < states; ++s) {
      const int64_t numel = units_[u].optimizer.numel() / states;
      fill(s, units_[u].optimizer.narrow(0, s * numel, numel), unit);
    }
  }
  steps_ = steps;
  wait();
}

}  // namespace veil
