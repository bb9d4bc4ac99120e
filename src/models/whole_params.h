// A model's parameters, whole on one device: for evaluation and sampling outside of a training
// step.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/shape.h"

namespace veil {

class WholeParams final : public Params {
 public:
  // `fill` as InitialWeights::fill (models/load.h). What it does not know starts by its own rule,
  // with this seed; without a seed it must know every parameter.
  WholeParams(const std::vector<ParamShape>& params, DType dtype, Device device,
              const std::function<bool(ParamId, int64_t first, const Tensor& out)>& fill,
              std::optional<uint64_t> seed = {});
  const Tensor& operator[](ParamId id) const override { return views_[static_cast<size_t>(id)]; }
  Tensor joined(ParamId first, int count) const override;

 private:
  Tensor flat_;
  std::vector<int64_t> offsets_;
  std::vector<Tensor> views_;
};

}  // namespace veil
