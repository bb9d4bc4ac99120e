#include "kernels/timestep_features.h"

#include <ATen/Dispatch.h>

#include <cmath>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {

void timestep_features(const Tensor& condition, int64_t labels, const Tensor& features,
                       const Tensor& ids) {
  const int64_t batch = condition.numel(), width = batch ? features.numel() / batch : 0;
  VEIL_CHECK(labels > 0 && width % 2 == 0 && fits(condition, at::kLong, batch) &&
                 fits(ids, at::kLong, batch) &&
                 fits(features, features.scalar_type(), batch * width),
             "timestep features of {} samples, {} each, {} labels", batch, width, labels);
  if (batch == 0) return;
  const int64_t* source = condition.data_ptr<int64_t>();
  int64_t* id = ids.data_ptr<int64_t>();
  if (condition.is_cuda()) {
    launch::timestep_features(source, labels, features.data_ptr(), element_of(features), id, batch,
                              width, Stream::current(condition.device()).handle());
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, features.scalar_type(), "timestep_features", [&] {
        scalar_t* out = features.data_ptr<scalar_t>();
        const int64_t half = width / 2;
        for (int64_t i = 0; i < batch; ++i) {
          const auto timestep = static_cast<double>(source[i] / labels);
          id[i] = source[i] % labels;
          for (int64_t k = 0; k < half; ++k) {
            const double angle = timestep * std::exp(-std::log(10000.0) * static_cast<double>(k) /
                                                     static_cast<double>(half));
            out[i * width + k] = static_cast<scalar_t>(std::cos(angle));
            out[i * width + half + k] = static_cast<scalar_t>(std::sin(angle));
          }
        }
      });
}

}  // namespace veil
