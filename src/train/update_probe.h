// What the optimizer was given in one step: (clipped sum + noise) / E, read back from what the
// update left behind. Nothing in the step is changed for it, so it is the release of the real
// kernels, fused or not, on any device.
//
// AdamW and SGD with momentum: from moments of 0 the first moment is the gradient times a known
// factor. Plain SGD has no state: there the parameters' move is divided by the learning rate.
#pragma once

#include "engine/executor.h"

namespace veil {

class UpdateProbe {
 public:
  // The executor's parameters, as they are now, are where every step starts that is looked at.
  // `deviation`: the noise's that is expected on the gradient, for the learning rate of plain SGD.
  UpdateProbe(Executor& executor, const OptimizerOptions& optimizer, double deviation);

  // Puts the executor back: the parameters of the start, moments of 0, `steps` steps done.
  void rewind(int64_t steps);
  // The same from other parameters: `change` may write to the start's, by their model-wide index.
  void rewind(int64_t steps, const std::function<void(const Tensor& start)>& change);

  // What to take the step with. Plain SGD: a power of two so large that the move is not lost in the
  // rounding of the parameters, which comes after the noise. Others: `wanted`.
  double learning_rate(double wanted) const;

  // The gradient of the one step that was taken since rewind(): fp64 on CPU, one element for each
  // model-wide index of what is trained (shard/layout.h), the same on every rank; 0 between
  // parameters, and with SGD if a parameter of the start is not a number. Every rank must call
  // it.
  Tensor gradient();
  // Whether a frozen parameter was moved in that step; after gradient().
  bool frozen_moved() const { return frozen_moved_; }
  // How finely what is read is known, relative to it; and how far a gradient's norm may be off for
  // it. What SGD leaves behind holds the weight decay as well.
  double resolution() const;
  double read_error(const Tensor& gradient) const;
  int64_t elements() const { return elements_; }

  // A parameter's place among the model-wide indices.
  struct Place {
    ParamId param = 0;
    int64_t first = 0, numel = 0;
  };
  const std::vector<Place>& places() const { return places_; }  // those that are trained

 private:
  Executor& executor_;
  OptimizerOptions optimizer_;
  double large_rate_ = 1;
  int64_t elements_ = 0;
  std::vector<Place> places_;
  std::vector<std::pair<ParamId, Tensor>> frozen_;  // with their values at the start
  Tensor start_;    // fp64 [elements]: parameters as first found; whole on every rank
  Tensor current_;  // as of the last rewind
  DType read_from_ = at::kFloat;
  bool frozen_moved_ = false;

  Tensor gathered(const std::function<Tensor(const StatePiece&)>& of);
};

}  // namespace veil
