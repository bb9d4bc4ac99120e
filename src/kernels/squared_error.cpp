#include "kernels/squared_error.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {

void squared_error(const Tensor& output, const Tensor& target, const Tensor& grad,
                   const Tensor& losses) {
  const int64_t batch = losses.numel(), width = batch ? output.numel() / batch : 0;
  VEIL_CHECK(output.is_contiguous() && target.is_contiguous() && grad.is_contiguous() &&
                 output.numel() == target.numel() && output.numel() == grad.numel() &&
                 output.scalar_type() == target.scalar_type() &&
                 output.scalar_type() == grad.scalar_type(),
             "squared error of tensors that do not match");
  if (output.is_cuda()) {
    launch::squared_error({output.data_ptr(), target.data_ptr(), grad.data_ptr(),
                           element_of(output), losses.data_ptr<double>(), batch, width,
                           Stream::current(output.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, output.scalar_type(), "squared_error", [&] {
        using real = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
        const scalar_t* out = output.data_ptr<scalar_t>();
        const scalar_t* wanted = target.data_ptr<scalar_t>();
        scalar_t* g = grad.data_ptr<scalar_t>();
        double* loss = losses.data_ptr<double>();
        at::parallel_for(0, batch, 16, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            double sum = 0;
            for (int64_t j = i * width; j < (i + 1) * width; ++j) {
              const real difference = static_cast<real>(out[j]) - static_cast<real>(wanted[j]);
              sum += static_cast<double>(difference) * static_cast<double>(difference);
              g[j] = static_cast<scalar_t>(difference * (real(2) / static_cast<real>(width)));
            }
            loss[i] = sum / static_cast<double>(width);
          }
        });
      });
}

void add_losses(const Tensor& losses, const Tensor& total) {
  if (losses.is_cuda()) {
    launch::add_losses(losses.data_ptr<double>(), losses.numel(), total.data_ptr<double>(),
                       Stream::current(losses.device()).handle());
    return;
  }
  const double* loss = losses.data_ptr<double>();
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += loss[i];
  total.data_ptr<double>()[0] += sum;
}

}  // namespace veil
