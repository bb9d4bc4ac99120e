#include "kernels/coefficients.h"

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {

void clip_coefficients(const CoefficientsOf& of, const Tensor& coefficients, const Tensor& tally) {
  const int64_t params = of.squared.size(0), samples = of.squared.size(1);
  VEIL_CHECK(fits(of.squared, at::kDouble, params * samples) && fits(of.layers, at::kInt, params) &&
                 absent_or_fits(of.counted, at::kByte, samples) &&
                 of.end_layer <= of.clip_norms.numel() &&
                 fits(coefficients, at::kDouble, of.clip_norms.numel() * samples) &&
                 fits(tally, at::kDouble, kClipTally),
             "coefficients of {} samples and {} parameters", samples, params);
  const auto* counted = static_cast<const uint8_t*>(pointer_or_null(of.counted));
  auto* sums = reinterpret_cast<ClipTally*>(tally.data_ptr<double>());
  if (coefficients.is_cuda()) {
    launch::clip_coefficients({of.squared.data_ptr<double>(), of.layers.data_ptr<int32_t>(),
                               of.clip_norms.data_ptr<double>(), counted,
                               coefficients.data_ptr<double>(), sums, params, samples,
                               of.first_layer, of.end_layer, of.function, of.last,
                               Stream::current(coefficients.device()).handle()});
    return;
  }
  for (int64_t i = 0; i < samples; ++i)
    sample_coefficients(of.squared.data_ptr<double>(), of.layers.data_ptr<int32_t>(),
                        of.clip_norms.data_ptr<double>(), counted, coefficients.data_ptr<double>(),
                        of.last ? sums : nullptr, params, samples, of.first_layer, of.end_layer,
                        of.function, i);
}

}  // namespace veil
