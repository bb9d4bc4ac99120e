#include "kernels/sample_combine.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {

void combine_samples(const Tensor& x, const Tensor& coefficients, const Tensor& out, bool add,
                     int64_t together) {
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
        // Adds samples [first, last) to sums of the elements from `at` on.
        const auto add_to = [&](real* sums, int64_t at, int64_t count, int64_t first,
                                int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            if (c[i] == 0) continue;
            const auto factor = static_cast<real>(c[i]);
            const scalar_t* row = from + i * x.stride(0) + at;
            for (int64_t j = 0; j < count; ++j) sums[j] += factor * static_cast<real>(row[j]);
          }
        };
        at::parallel_for(0, numel, 1 << 14, [&](int64_t begin, int64_t end) {
          if (!add) std::fill(to + begin, to + end, real{0});
          if (together == 0) return add_to(to + begin, begin, end - begin, 0, samples);
          constexpr int64_t kChunk = 1024;
          real sum[kChunk], part[kChunk];
          for (int64_t at = begin; at < end; at += kChunk) {
            const int64_t count = std::min(kChunk, end - at);
            std::fill_n(sum, count, real{0});
            for (int64_t first = 0; first < samples; first += together) {
              std::fill_n(part, count, real{0});
              add_to(part, at, count, first, std::min(first + together, samples));
              for (int64_t j = 0; j < count; ++j) sum[j] += part[j];
            }
            for (int64_t j = 0; j < count; ++j) to[at + j] += sum[j];
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
