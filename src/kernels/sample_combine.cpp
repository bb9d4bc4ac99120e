#include "kernels/sample_combine.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {

void combine_samples(const Tensor& x, const Tensor& coefficients, const Tensor& out, bool add) {
  const int64_t samples = x.size(0), numel = samples ? x.numel() / samples : out.numel();
  VEIL_CHECK((samples == 0 || x.select(0, 0).is_contiguous()) &&
                 fits(coefficients, at::kDouble, samples) &&
                 fits(out, real_of(x.scalar_type()), numel),
             "a clipped sum of {} samples of {} into {}", samples, numel, out.numel());
  if (out.is_cuda()) {
    launch::combine_samples({x.data_ptr(), element_of(x), samples, samples ? x.stride(0) : 0, numel,
                             coefficients.data_ptr<double>(), out.data_ptr(), element_of(out), add,
                             Stream::current(out.device()).handle()});
    return;
  }
  const double* c = coefficients.data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, x.scalar_type(), "combine_samples", [&] {
        using real = at::opmath_type<scalar_t>;
        const scalar_t* from = x.data_ptr<scalar_t>();
        real* to = out.data_ptr<real>();
        at::parallel_for(0, numel, 1 << 14, [&](int64_t begin, int64_t end) {
          if (!add) std::fill(to + begin, to + end, real{0});
          for (int64_t i = 0; i < samples; ++i) {
            if (c[i] == 0) continue;
            const auto factor = static_cast<real>(c[i]);
            const scalar_t* row = from + i * x.stride(0);
            for (int64_t j = begin; j < end; ++j) to[j] += factor * static_cast<real>(row[j]);
          }
        });
      });
}

void scale_samples(const Tensor& x, const Tensor& coefficients, const Tensor& out, bool select) {
  const int64_t samples = x.size(0), numel = samples ? x.numel() / samples : 0;
  VEIL_CHECK((samples == 0 || x.select(0, 0).is_contiguous()) &&
                 fits(coefficients, at::kDouble, samples) &&
                 fits(out, real_of(x.scalar_type()), x.numel()),
             "{} scaled samples of {} into {}", samples, numel, out.numel());
  if (out.is_cuda()) {
    launch::scale_samples({x.data_ptr(), element_of(x), samples, samples ? x.stride(0) : 0, numel,
                           coefficients.data_ptr<double>(), out.data_ptr(), select,
                           Stream::current(out.device()).handle()});
    return;
  }
  const double* c = coefficients.data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "scale_samples", [&] {
    using real = at::opmath_type<scalar_t>;
    at::parallel_for(0, samples, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const scalar_t* from = x.data_ptr<scalar_t>() + i * x.stride(0);
        real* to = out.data_ptr<real>() + i * numel;
        const auto factor = select ? real{1} : static_cast<real>(c[i]);
        for (int64_t j = 0; j < numel; ++j)
          to[j] = c[i] == 0 ? real{0} : factor * static_cast<real>(from[j]);
      }
    });
  });
}

}  // namespace veil
