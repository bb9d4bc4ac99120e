#include "kernels/norm.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <cmath>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

template <typename T, typename Real>
void rms_norm_cpu(const T* x, const T* add, const T* weight, Real offset, Real epsilon, T* sum,
                  T* out, Real* rstd, int64_t rows, int64_t width) {
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * width;
      const T* row = row_to_normalise<T, Real>(x + at, add ? add + at : nullptr,
                                               sum ? sum + at : nullptr, width);
      const Real squares = lane_sum<Real>(width, [row](int64_t j) {
        return static_cast<Real>(row[j]) * static_cast<Real>(row[j]);
      });
      const Real r = 1 / std::sqrt(squares / static_cast<Real>(width) + epsilon);
      rstd[i] = r;
      T* to = out + at;
      for (int64_t j = 0; j < width; ++j) {
        to[j] =
            static_cast<T>(static_cast<Real>(row[j]) * r * (static_cast<Real>(weight[j]) + offset));
      }
    }
  });
}

// The weight's gradient first: dx may be written over dy.
template <typename T, typename Real>
void rms_norm_backward_cpu(const T* dy, const T* x, const T* weight, Real offset, const Real* rstd,
                           const T* residual, T* dx, Real* weight_grad, int64_t batch, int64_t rows,
                           int64_t width) {
  sum_over_samples(batch, rows, width, weight_grad, [=](int64_t sample, int64_t t, int64_t j) {
    const int64_t row = sample * rows + t;
    return static_cast<Real>(dy[row * width + j]) *
           (static_cast<Real>(x[row * width + j]) * rstd[row]);
  });
  at::parallel_for(0, batch * rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *g = dy + i * width, *v = x + i * width;
      const Real r = rstd[i];
      const Real product = lane_sum<Real>(width, [=](int64_t j) {
        return static_cast<Real>(g[j]) * (static_cast<Real>(weight[j]) + offset) *
               (static_cast<Real>(v[j]) * r);
      });
      const Real mean = product / static_cast<Real>(width);
      T* to = dx + i * width;
      auto value = [=](int64_t j) {
        return r * (static_cast<Real>(g[j]) * (static_cast<Real>(weight[j]) + offset) -
                    static_cast<Real>(v[j]) * r * mean);
      };
      if (residual) {
        const T* before = residual + i * width;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; ++j)
          to[j] = static_cast<T>(value(j) + static_cast<Real>(before[j]));
      } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; ++j) to[j] = static_cast<T>(value(j));
      }
    }
  });
}

}  // namespace

void rms_norm(const Tensor& x, const Tensor& add, const Tensor& weight, double epsilon,
              const Tensor& sum, const Tensor& out, const Tensor& rstd, double offset) {
  const int64_t width = weight.numel(), rows = rstd.numel();
  const DType dtype = x.scalar_type();
  VEIL_CHECK(fits(x, dtype, rows * width) && fits(out, dtype, rows * width) &&
                 fits(weight, dtype, width) && fits(rstd, real_of(dtype), rows) &&
                 absent_or_fits(add, dtype, rows * width) &&
                 (!add.defined() || fits(sum, dtype, rows * width)),
             "rms_norm of tensors that do not match: {} rows of {}", rows, width);
  if (rows * width == 0) return;
  void* const sum_at = add.defined() ? sum.data_ptr() : nullptr;
  if (x.is_cuda()) {
    launch::rms_norm({x.data_ptr(), pointer_or_null(add), weight.data_ptr(), nullptr, sum_at,
                      out.data_ptr(), nullptr, rstd.data_ptr(), element_of(x), rows, width, epsilon,
                      Stream::current(x.device()).handle(), nullptr, 0, 0, offset});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "rms_norm", [&] {
    using real = at::opmath_type<scalar_t>;
    rms_norm_cpu(x.data_ptr<scalar_t>(), static_cast<const scalar_t*>(pointer_or_null(add)),
                 weight.data_ptr<scalar_t>(), static_cast<real>(offset), static_cast<real>(epsilon),
                 static_cast<scalar_t*>(sum_at), out.data_ptr<scalar_t>(), rstd.data_ptr<real>(),
                 rows, width);
  });
}

int64_t norm_backward_scratch_bytes(int64_t batch, int64_t rows_per_sample, int64_t width,
                                    DType dtype, bool on_gpu) {
  const int64_t strips = launch::sample_strips(batch, rows_per_sample);
  return on_gpu && strips > 1 ? batch * strips * width * dtype_bytes(real_of(dtype)) : 0;
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                       const Tensor& residual, const Tensor& dx, const Tensor& weight_grad,
                       double offset) {
  const int64_t width = weight.numel(), batch = width ? weight_grad.numel() / width : 0;
  const int64_t rows = batch ? rstd.numel() / batch : 0;
  const DType dtype = x.scalar_type(), real_type = real_of(dtype);
  const int64_t numel = batch * rows * width;
  VEIL_CHECK(fits(x, dtype, numel) && fits(dy, dtype, numel) && fits(dx, dtype, numel) &&
                 fits(weight, dtype, width) && fits(rstd, real_type, batch * rows) &&
                 fits(weight_grad, real_type, batch * width) &&
                 absent_or_fits(residual, dtype, numel),
             "rms_norm_backward of tensors that do not match: {} samples of {} rows of {}", batch,
             rows, width);
  if (batch * width == 0) return;
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const int64_t scratch =
        norm_backward_scratch_bytes(batch, rows, width, dtype, true) / dtype_bytes(real_type);
    const Tensor partial = scratch ? empty_tensor({scratch}, real_type, x.device()) : Tensor();
    launch::rms_norm_backward({dy.data_ptr(), x.data_ptr(), weight.data_ptr(), nullptr,
                               rstd.data_ptr(), pointer_or_null(residual), dx.data_ptr(),
                               weight_grad.data_ptr(), nullptr, pointer_or_null(partial),
                               element_of(x), batch, rows, width,
                               Stream::current(x.device()).handle(), 0, 0, offset});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "rms_norm_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    rms_norm_backward_cpu(
        dy.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(),
        static_cast<real>(offset), rstd.data_ptr<real>(),
        static_cast<const scalar_t*>(pointer_or_null(residual)), dx.data_ptr<scalar_t>(),
        weight_grad.data_ptr<real>(), batch, rows, width);
  });
}

namespace {

template <typename T, typename Real>
void layer_norm_cpu(const T* x, const T* add, const T* weight, const T* bias, Real epsilon, T* sum,
                    T* out, Real* mean, Real* rstd, int64_t rows, int64_t width) {
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * width;
      const T* row = row_to_normalise<T, Real>(x + at, add ? add + at : nullptr,
                                               sum ? sum + at : nullptr, width);
      const Real m = lane_sum<Real>(width, [row](int64_t j) { return static_cast<Real>(row[j]); }) /
                     static_cast<Real>(width);
      const Real squares = lane_sum<Real>(width, [row, m](int64_t j) {
        return (static_cast<Real>(row[j]) - m) * (static_cast<Real>(row[j]) - m);
      });
      const Real r = 1 / std::sqrt(squares / static_cast<Real>(width) + epsilon);
      mean[i] = m;
      rstd[i] = r;
      T* to = out + at;
      for (int64_t j = 0; j < width; ++j) {
        to[j] = static_cast<T>((static_cast<Real>(row[j]) - m) * r * static_cast<Real>(weight[j]) +
                               static_cast<Real>(bias[j]));
      }
    }
  });
}

// The parameters' gradients first: dx may be written over dy.
template <typename T, typename Real>
void layer_norm_backward_cpu(const T* dy, const T* x, const T* weight, const Real* mean,
                             const Real* rstd, const T* residual, T* dx, Real* weight_grad,
                             Real* bias_grad, int64_t batch, int64_t rows, int64_t width) {
  sum_over_samples(batch, rows, width, weight_grad, [=](int64_t sample, int64_t t, int64_t j) {
    const int64_t row = sample * rows + t;
    return static_cast<Real>(dy[row * width + j]) *
           ((static_cast<Real>(x[row * width + j]) - mean[row]) * rstd[row]);
  });
  sum_over_samples(batch, rows, width, bias_grad, [=](int64_t sample, int64_t t, int64_t j) {
    return static_cast<Real>(dy[(sample * rows + t) * width + j]);
  });
  at::parallel_for(0, batch * rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *g = dy + i * width, *v = x + i * width;
      const Real r = rstd[i], m = mean[i], count = static_cast<Real>(width);
      auto upper = [=](int64_t j) {
        return static_cast<Real>(g[j]) * static_cast<Real>(weight[j]);
      };
      auto normal = [=](int64_t j) { return (static_cast<Real>(v[j]) - m) * r; };
      const Real mean_g = lane_sum<Real>(width, upper) / count;
      const Real mean_gy =
          lane_sum<Real>(width, [=](int64_t j) { return upper(j) * normal(j); }) / count;
      T* to = dx + i * width;
      auto value = [=](int64_t j) { return r * (upper(j) - mean_g - normal(j) * mean_gy); };
      if (residual) {
        const T* before = residual + i * width;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; ++j)
          to[j] = static_cast<T>(value(j) + static_cast<Real>(before[j]));
      } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; ++j) to[j] = static_cast<T>(value(j));
      }
    }
  });
}

}  // namespace

void layer_norm(const Tensor& x, const Tensor& add, const Tensor& weight, const Tensor& bias,
                double epsilon, const Tensor& sum, const Tensor& out, const Tensor& mean,
                const Tensor& rstd) {
  const int64_t width = weight.numel(), rows = rstd.numel();
  const DType dtype = x.scalar_type(), real_type = real_of(dtype);
  VEIL_CHECK(fits(x, dtype, rows * width) && fits(out, dtype, rows * width) &&
                 fits(weight, dtype, width) && fits(bias, dtype, width) &&
                 fits(mean, real_type, rows) && fits(rstd, real_type, rows) &&
                 absent_or_fits(add, dtype, rows * width) &&
                 (!add.defined() || fits(sum, dtype, rows * width)),
             "layer_norm of tensors that do not match: {} rows of {}", rows, width);
  if (rows * width == 0) return;
  void* const sum_at = add.defined() ? sum.data_ptr() : nullptr;
  if (x.is_cuda()) {
    launch::layer_norm({x.data_ptr(), pointer_or_null(add), weight.data_ptr(), bias.data_ptr(),
                        sum_at, out.data_ptr(), mean.data_ptr(), rstd.data_ptr(), element_of(x),
                        rows, width, epsilon, Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "layer_norm", [&] {
    using real = at::opmath_type<scalar_t>;
    layer_norm_cpu(x.data_ptr<scalar_t>(), static_cast<const scalar_t*>(pointer_or_null(add)),
                   weight.data_ptr<scalar_t>(), bias.data_ptr<scalar_t>(),
                   static_cast<real>(epsilon), static_cast<scalar_t*>(sum_at),
                   out.data_ptr<scalar_t>(), mean.data_ptr<real>(), rstd.data_ptr<real>(), rows,
                   width);
  });
}

void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& weight_grad, const Tensor& bias_grad) {
  const int64_t width = weight.numel(), batch = width ? weight_grad.numel() / width : 0;
  const int64_t rows = batch ? rstd.numel() / batch : 0;
  const DType dtype = x.scalar_type(), real_type = real_of(dtype);
  const int64_t numel = batch * rows * width;
  VEIL_CHECK(
      fits(x, dtype, numel) && fits(dy, dtype, numel) && fits(dx, dtype, numel) &&
          fits(weight, dtype, width) && fits(mean, real_type, batch * rows) &&
          fits(rstd, real_type, batch * rows) && fits(weight_grad, real_type, batch * width) &&
          fits(bias_grad, real_type, batch * width) && absent_or_fits(residual, dtype, numel),
      "layer_norm_backward of tensors that do not match: {} samples of {} rows of {}", batch, rows,
      width);
  if (batch * width == 0) return;
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const int64_t scratch =
        2 * norm_backward_scratch_bytes(batch, rows, width, dtype, true) / dtype_bytes(real_type);
    const Tensor partial = scratch ? empty_tensor({scratch}, real_type, x.device()) : Tensor();
    launch::layer_norm_backward({dy.data_ptr(), x.data_ptr(), weight.data_ptr(), mean.data_ptr(),
                                 rstd.data_ptr(), pointer_or_null(residual), dx.data_ptr(),
                                 weight_grad.data_ptr(), bias_grad.data_ptr(),
                                 pointer_or_null(partial), element_of(x), batch, rows, width,
                                 Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "layer_norm_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    layer_norm_backward_cpu(
        dy.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(),
        mean.data_ptr<real>(), rstd.data_ptr<real>(),
        static_cast<const scalar_t*>(pointer_or_null(residual)), dx.data_ptr<scalar_t>(),
        weight_grad.data_ptr<real>(), bias_grad.data_ptr<real>(), batch, rows, width);
  });
}

}  // namespace veil
