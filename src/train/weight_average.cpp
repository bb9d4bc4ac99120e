#include "train/weight_average.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace veil {
namespace {

constexpr int kParams = -1;  // of Executor::ReadState

}  // namespace

WeightAverage::WeightAverage(Executor& executor, double decay)
    : executor_(executor), decay_(decay) {
  CategoryScope scope(Category::optimizer);
  for (const Executor::StatePiece& piece : executor.state()) {
    const DType real = sum_dtype(piece.params.scalar_type());
    pieces_.push_back({piece.first, piece.params.to(real, /*non_blocking=*/false, /*copy=*/true)});
  }
}

void WeightAverage::update() {
  ++updates_;
  const double n = static_cast<double>(updates_), decay = std::min(decay_, (1 + n) / (10 + n));
  const std::vector<Executor::StatePiece> now = executor_.state();
  CategoryScope scope(Category::temporary);
  for (size_t i = 0; i < pieces_.size(); ++i)
    // exact if both are equal
    pieces_[i].average.lerp_(now[i].params.to(pieces_[i].average.scalar_type()), 1 - decay);
  synchronize(executor_.device());  // the next step changes the parameters on a stream of its own
}

int64_t WeightAverage::place_of(ParamId id) const {
  const Layout& layout = executor_.schedule().layout;
  return layout.units[static_cast<size_t>(layout.unit_of_param[static_cast<size_t>(id)])].base +
         layout.offset_of_param[static_cast<size_t>(id)];
}

Tensor WeightAverage::own_part(int64_t begin, int64_t end) const {
  const Tensor part = at::zeros(
      {end - begin}, pieces_.empty() ? at::TensorOptions(at::kFloat).device(executor_.device())
                                     : pieces_[0].average.options());
  for (const Piece& piece : pieces_) {
    const int64_t from = std::max(begin, piece.first),
                  to = std::min(end, piece.first + piece.average.numel());
    if (from < to)
      part.narrow(0, from - begin, to - from)
          .copy_(piece.average.narrow(0, from - piece.first, to - from));
  }
  return part;
}

Tensor WeightAverage::parameter(ParamId id) {
  const ParamShape& param = executor_.shape().params[static_cast<size_t>(id)];
  if (param.frozen) return executor_.parameter(id);
  CategoryScope scope(Category::temporary);
  // The ranks' pieces do not overlap: their sum is the whole.
  const Tensor whole = own_part(place_of(id), place_of(id) + param.numel());
  if (Communicator* lane = executor_.communicator()) lane->all_reduce(whole)->wait();
  return whole.cpu().view(param.dims);
}

void WeightAverage::read(int64_t first, const Tensor& out) {
  CategoryScope scope(Category::temporary);
  const Tensor part = own_part(first, first + out.numel());
  Communicator* const lane = executor_.communicator();
  if (lane && executor_.schedule().trained.whole) lane->all_reduce(part)->wait();
  out.copy_(part);
}

void WeightAverage::restore(int64_t updates,
                            const std::function<void(int64_t first, const Tensor& out)>& read) {
  updates_ = updates;
  for (const Piece& piece : pieces_) read(piece.first, piece.average);
}

// restore() hands out the places of parameters and of the optimizer's state; those that are not
// written stay as they are.
AverageInPlace::AverageInPlace(Executor& executor, WeightAverage& average) : executor_(executor) {
  executor_.restore(executor_.steps(), [&](int kind, int64_t first, const Tensor& out) {
    if (kind != kParams) return;
    {
      CategoryScope scope(Category::temporary);
      params_[first] =
          out.to(cpu_device(), out.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    }
    average.read(first, out);
  });
}

AverageInPlace::~AverageInPlace() {
  executor_.restore(executor_.steps(), [&](int kind, int64_t first, const Tensor& out) {
    if (kind == kParams) out.copy_(params_.at(first));
  });
}

}  // namespace veil
