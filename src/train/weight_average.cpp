#include "train/weight_average.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

constexpr const char* kUpdates = "average.updates";

}  // namespace

WeightAverage::WeightAverage(Executor& executor, double decay) : executor_(executor), decay_(decay) {
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
    pieces_[i].average.mul_(decay).add_(now[i].params.to(pieces_[i].average.scalar_type()), 1 - decay);
  synchronize(executor_.device());  // the next step changes the parameters on a stream of its own
}

int64_t WeightAverage::place_of(ParamId id) const {
  const Layout& layout = executor_.schedule().layout;
  return layout.units[static_cast<size_t>(layout.unit_of_param[static_cast<size_t>(id)])].base +
         layout.offset_of_param[static_cast<size_t>(id)];
}

Tensor WeightAverage::parameter(ParamId id) {
  const ParamShape& param = executor_.shape().params[static_cast<size_t>(id)];
  const int64_t begin = place_of(id), end = begin + param.numel();
  CategoryScope scope(Category::temporary);
  // The ranks' pieces do not overlap: their sum is the whole.
  const Tensor whole =
      at::zeros({param.numel()}, pieces_.empty() ? at::TensorOptions(at::kFloat).device(executor_.device())
                                                 : pieces_[0].average.options());
  for (const Piece& piece : pieces_) {
    const int64_t from = std::max(begin, piece.first), to = std::min(end, piece.first + piece.average.numel());
    if (from < to)
      whole.narrow(0, from - begin, to - from).copy_(piece.average.narrow(0, from - piece.first, to - from));
  }
  if (Communicator* lane = executor_.communicator()) lane->all_reduce(whole)->wait();
  return whole.cpu().view(param.dims);
}

void WeightAverage::save(const std::string& path) {
  std::vector<TensorSource> sources;
  const auto& params = executor_.shape().params;
  const bool writes = !executor_.communicator() || executor_.communicator()->rank() == 0;
  Tensor updates = empty_tensor({1}, at::kDouble, cpu_device());
  updates.fill_(static_cast<double>(updates_));
  sources.push_back(tensor_source(kUpdates, updates, StoredType::f64));
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor average = parameter(static_cast<ParamId>(i));
    if (writes) sources.push_back(tensor_source(params[i].name, average, stored_type(average.scalar_type())));
  }
  if (writes) write_safetensors(path, sources);
}

void WeightAverage::load(const std::string& path) {
  const Weights weights(path);
  std::vector<WantedTensor> wanted = {{kUpdates, {1}}};
  const auto& params = executor_.shape().params;
  for (const ParamShape& param : params) wanted.push_back({param.name, param.dims});
  check_weights(weights, wanted);
  Tensor updates = empty_tensor({1}, at::kDouble, cpu_device());
  read_weight(weights, *weights.find(kUpdates), 0, updates);
  updates_ = static_cast<int64_t>(updates.data_ptr<double>()[0]);
  for (size_t i = 0; i < params.size(); ++i) {
    const int64_t begin = place_of(static_cast<ParamId>(i)), end = begin + params[i].numel();
    for (const Piece& piece : pieces_) {
      const int64_t from = std::max(begin, piece.first), to = std::min(end, piece.first + piece.average.numel());
      if (from >= to) continue;
      Tensor host = empty_tensor({to - from}, piece.average.scalar_type(), cpu_device());
      read_weight(weights, *weights.find(params[i].name), from - begin, host);
      piece.average.narrow(0, from - piece.first, to - from).copy_(host);
    }
  }
}

}  // namespace veil
