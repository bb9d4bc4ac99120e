#include "kernels/coefficients.h"

#include "kernels/launch_clip.h"
#include "kernels/seam.h"
#include "tensor/stream.h"

namespace veil {

void clip_coefficients(const CoefficientsOf& of, const Tensor& coefficients, const Tensor& facts) {
  const int64_t params = of.squared.size(0), samples = of.squared.size(1);
  VEIL_CHECK(fits(of.squared, at::kDouble, params * samples) && fits(of.layers, at::kInt, params) &&
                 absent_or_fits(of.counted, at::kByte, samples) && of.end_layer <= of.clip_norms.numel() &&
                 fits(coefficients, at::kDouble, of.clip_norms.numel() * samples) &&
                 fits(facts, at::kDouble, kClipFacts),
             "coefficients of {} samples and {} parameters", samples, params);
  const auto* counted = static_cast<const uint8_t*>(pointer_or_null(of.counted));
  if (coefficients.is_cuda()) {
    launch::clip_coefficients({of.squared.data_ptr<double>(), of.layers.data_ptr<int32_t>(),
                               of.clip_norms.data_ptr<double>(), counted, coefficients.data_ptr<double>(),
                               facts.data_ptr<double>(), params, samples, of.first_layer, of.end_layer, of.automatic,
                               of.last, Stream::current(coefficients.device()).handle()});
    return;
  }
  for (int64_t i = 0; i < samples; ++i)
    sample_coefficients(of.squared.data_ptr<double>(), of.layers.data_ptr<int32_t>(), of.clip_norms.data_ptr<double>(),
                        counted, coefficients.data_ptr<double>(), of.last ? facts.data_ptr<double>() : nullptr, params,
                        samples, of.first_layer, of.end_layer, of.automatic, i);
}

}  // namespace veil
