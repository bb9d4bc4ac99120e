#include "train/update_probe.h"

#include <ATen/ops/zeros.h>

#include <cmath>

#include "base/error.h"

namespace veil {

UpdateProbe::UpdateProbe(Executor& executor, const OptimizerOptions& optimizer, double deviation)
    : executor_(executor), optimizer_(optimizer) {
  for (const UnitLayout& unit : executor.schedule().layout.units) {
    if (!unit.frozen) elements_ = std::max(elements_, unit.base + unit.numel);
    for (const ParamSlot& slot : unit.slots) {
      // By the model's word, not by the layout's: the layout may be what is wrong.
      if (executor.shape().params[static_cast<size_t>(slot.param)].frozen) {
        frozen_.emplace_back(slot.param, executor.parameter(slot.param));
      } else {
        places_.push_back({slot.param, unit.base + slot.offset, slot.numel});
      }
    }
  }
  start_ = gathered([](const StatePiece& piece) { return piece.params; });
  current_ = start_;
  const StepOptions& step = executor.schedule().options;
  read_from_ = optimizer_.kind == OptimizerKind::sgd ? step.storage : step.optimizer_state();
  // Far above the parameters, as they are of the order of 1.
  const double largest = std::max(1.0, start_.nan_to_num(0, 0, 0).abs().max().item<double>());
  large_rate_ = std::exp2(std::ceil(std::log2(largest / std::max(1e-30, deviation))) + 12);
}

void UpdateProbe::rewind(int64_t steps) {
  rewind(steps, [](const Tensor&) {});
}

void UpdateProbe::rewind(int64_t steps, const std::function<void(const Tensor&)>& change) {
  current_ = start_.clone();
  change(current_);
  executor_.restore(steps, [&](int kind, int64_t first, const Tensor& out) {
    if (kind < 0) {
      out.copy_(current_.narrow(0, first, out.numel()));
    } else {
      out.zero_();
    }
  });
}

double UpdateProbe::learning_rate(double wanted) const {
  return optimizer_.kind == OptimizerKind::sgd ? large_rate_ : wanted;
}

// Each rank's own elements, put together.
Tensor UpdateProbe::gathered(const std::function<Tensor(const StatePiece&)>& of) {
  Tensor all = at::zeros({elements_}, at::kDouble);
  for (const StatePiece& piece : executor_.state()) {
    const Tensor own = of(piece).to(at::kDouble).cpu();
    all.narrow(0, piece.first, own.numel()).copy_(own);
  }
  Communicator* const lane = executor_.communicator();
  if (!lane) return all;
  all = all.to(executor_.device());
  lane->all_reduce(all)->wait();
  synchronize(executor_.device());
  return all.cpu();
}

Tensor UpdateProbe::gradient() {
  executor_.wait();
  const Tensor params = gathered([](const StatePiece& piece) { return piece.params; });
  const bool has_state = optimizer_.kind != OptimizerKind::sgd;
  const Tensor state = has_state
                           ? gathered([](const StatePiece& piece) { return piece.optimizer.at(0); })
                           : Tensor();
  // Not a number is not equal to itself; a frozen one that stays is no move.
  const auto differs = [](const Tensor& a, const Tensor& b) {
    return !a.nan_to_num(0, 0, 0).equal(b.nan_to_num(0, 0, 0));
  };
  frozen_moved_ = false;
  for (const auto& [param, start] : frozen_) {
    if (differs(executor_.parameter(param), start)) frozen_moved_ = true;
  }
  Tensor all = at::zeros({elements_}, at::kDouble);
  for (const Place& place : places_) {
    const auto part = [&](const Tensor& of) { return of.narrow(0, place.first, place.numel); };
    // As the update has them: in the arithmetic's type.
    const auto real = [&](double value) {
      return params.defined() && read_from_ == at::kDouble ? value
                                                           : double{static_cast<float>(value)};
    };
    Tensor found;
    switch (optimizer_.kind) {
      case OptimizerKind::adamw:
        found = part(state).div(real(1 - optimizer_.beta1));
        break;
      case OptimizerKind::sgd_momentum:
        found = part(state).sub(part(current_).mul(real(optimizer_.weight_decay)));
        break;
      case OptimizerKind::sgd:
        found = part(current_)
                    .sub(part(params))
                    .div(large_rate_)
                    .sub(part(current_).mul(real(optimizer_.weight_decay)));
        break;
    }
    // What starts as no number stays one, and its move cannot be read from it.
    if (optimizer_.kind != OptimizerKind::adamw)
      found = found.masked_fill(part(current_).isnan(), 0);
    part(all).copy_(found);
  }
  return all;
}

double UpdateProbe::read_error(const Tensor& gradient) const {
  const double decay = optimizer_.kind == OptimizerKind::adamw ? 0 : optimizer_.weight_decay;
  const auto norm = [](const Tensor& of) { return of.nan_to_num(0, 0, 0).norm().item<double>(); };
  return resolution() * (norm(gradient) + (decay > 0 ? decay * norm(current_) : 0));
}

double UpdateProbe::resolution() const {
  return read_from_ == at::kDouble ? 0x1p-50 : read_from_ == at::kBFloat16 ? 0x1p-7 : 0x1p-21;
}

}  // namespace veil
