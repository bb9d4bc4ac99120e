#include "models/linear_stack.h"

#include <fmt/core.h>

#include <cmath>

#include "nn/linear.h"
#include "nn/mse.h"

namespace veil {

Model linear_stack(int64_t width, int64_t layers) {
  Model model;
  model.name = "linear-stack";
  // torch.nn.Linear's default
  const Init init{Init::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(width))};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("layers.{}", i);
    const int weight = static_cast<int>(model.params.size());
    model.params.push_back({name + ".weight", {width, width}, init});
    model.params.push_back({name + ".bias", {width}, init});
    model.blocks.push_back(
        std::make_unique<LinearRelu>(name, weight, weight + 1, width, width, /*first=*/i == 0));
  }
  model.loss = std::make_unique<MeanSquaredError>(width);
  model.input.dims = {width};
  model.target.dims = {width};
  return model;
}

}  // namespace veil
