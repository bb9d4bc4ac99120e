// The diffusion transformers among the goldens: a folder each, discovered.
#pragma once

#include "models/dit.h"
#include "models/test_language_golden.h"
#include "nn/noise_head.h"

namespace veil {

struct DiffusionGolden {
  std::string name, folder;
  DitConfig config;
  Tensor clean;  // [batch, channels, size, size]
  Tensor timesteps, labels;
  Batch batch;  // noised images, noise, conditions
  Tensor output, losses;
  std::map<std::string, Tensor> grad_sum;
  double clip_norm = 0;
  Tensor norms, clip_coefficients;
  std::map<std::string, Tensor> squared_norms, grad_clipped_sum;

  Batch batch_of(DType dtype, Device device) const;
  FlatParams params(const Model& model, DType dtype, Device device) const;
};
std::vector<DiffusionGolden> diffusion_goldens();

// A model's blocks one after the other, and back through the tapes as often as one likes.
class BlockRun {
 public:
  BlockRun(const Model& model, const Params& params, const Batch& batch);
  const Flow& last() const { return flow_; }
  double backward(GradSink& sink) const;  // the losses' sum

 private:
  const Model& model_;
  const Params& params_;
  Batch batch_;
  std::vector<Tape> tapes_;
  Flow flow_;
};

}  // namespace veil
