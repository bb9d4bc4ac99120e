// The end of a diffusion transformer in one operation: modulated norm, a linear map to patches, and
// the mean squared error of the noise they predict.
#pragma once

#include "nn/modulation.h"
#include "nn/patches.h"

namespace veil {

class NoiseHead final : public Loss {
 public:
  struct Layers {
    PatchGrid grid;
    Modulation modulation;  // shift, scale
    Projection linear;      // to [row, column, channel] of a patch
    int64_t hidden = 0;
    double epsilon = 1e-6;
  };
  explicit NoiseHead(Layers layers) : l_(layers) {}
  // batch.targets [batch, channels, size, size]: the noise.
  Flow run(const Params& params, const Flow& last, const Batch& batch, const Tensor& loss_sum,
           GradSink& sink) const override;
  Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const override;
  BlockShape shape(int64_t batch, DType compute, bool on_gpu) const override;
  // The predicted noise, [batch, channels, size, size].
  Tensor predict(const Params& params, const Flow& last) const;

 private:
  struct Predicted {
    Tensor modulation, normed, mean, rstd;
    Tensor patches;  // [batch, tokens, numbers of a patch]
  };
  Predicted forward(const Params& params, const Flow& last) const;
  Layers l_;
};

}  // namespace veil
