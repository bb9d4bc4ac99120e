#include "kernels/clip_scale.h"

#include "kernels/clip_scale_rule.h"
#include "kernels/launch.h"
#include "tensor/stream.h"

namespace veil {

void clip_scale(const Tensor& knobs) {
  double* at = knobs.data_ptr<double>();
  if (knobs.is_cuda()) {
    launch::clip_scale(at + kScaleKnob, at + kSquaredNormKnob, at + kMaxNormKnob,
                       Stream::current(knobs.device()).handle());
    return;
  }
  at[kScaleKnob] = clipped_scale(at[kScaleKnob], at[kSquaredNormKnob], at[kMaxNormKnob]);
}

}  // namespace veil
