#include "kernels/modulation.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <cmath>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/norm.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

struct Sizes {
  int64_t batch, rows, width;
  int64_t numel() const { return batch * rows * width; }
};

Sizes sizes_of(const Tensor& x) {
  VEIL_CHECK(x.dim() == 3 && x.is_contiguous(), "hidden states of {} dimensions", x.dim());
  return {x.size(0), x.size(1), x.size(2)};
}

// One row per sample, wherever the rows lie.
bool fits_rows(const Tensor& tensor, DType dtype, const Sizes& sizes) {
  return tensor.defined() && tensor.dim() == 2 && tensor.size(0) == sizes.batch &&
         tensor.size(1) == sizes.width && (tensor.stride(1) == 1 || sizes.width <= 1) &&
         tensor.scalar_type() == dtype;
}

template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  T* of(int64_t sample) const { return data + sample * stride; }
};
template <typename T>
Rows<T> rows_of(const Tensor& tensor) {
  return {tensor.data_ptr<T>(), tensor.stride(0)};
}

template <typename T, typename Real>
void modulated_norm_cpu(const Sizes& sizes, const T* x, const T* add, Rows<T> gate, Rows<T> scale,
                        Rows<T> shift, Real epsilon, T* sum, T* out, Real* mean, Real* rstd) {
  const int64_t width = sizes.width;
  at::parallel_for(
      0, sizes.batch * sizes.rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t sample = i / sizes.rows;
          const T* row = x + i * width;
          if (add) {
            const T *added = add + i * width, *by = gate.of(sample);
            T* to = sum + i * width;
#pragma GCC ivdep
            for (int64_t j = 0; j < width; ++j)
              to[j] = static_cast<T>(static_cast<Real>(row[j]) +
                                     static_cast<Real>(by[j]) * static_cast<Real>(added[j]));
            row = to;
          }
          const Real m =
              lane_sum<Real>(width, [row](int64_t j) { return static_cast<Real>(row[j]); }) /
              static_cast<Real>(width);
          const Real squares = lane_sum<Real>(width, [row, m](int64_t j) {
            return (static_cast<Real>(row[j]) - m) * (static_cast<Real>(row[j]) - m);
          });
          const Real r = 1 / std::sqrt(squares / static_cast<Real>(width) + epsilon);
          mean[i] = m;
          rstd[i] = r;
          const T *by = scale.of(sample), *plus = shift.of(sample);
          T* to = out + i * width;
          for (int64_t j = 0; j < width; ++j) {
            to[j] = static_cast<T>((static_cast<Real>(row[j]) - m) * r *
                                       (1 + static_cast<Real>(by[j])) +
                                   static_cast<Real>(plus[j]));
          }
        }
      });
}

// to[i, j] = the sum over sample i's rows of term(row, j), where row counts over all samples.
template <typename Real, typename Term>
void sum_rows(const Sizes& sizes, Rows<Real> to, const Term& term) {
  constexpr int64_t kStrip = 256;
  const int64_t strips = (sizes.width + kStrip - 1) / kStrip;
  at::parallel_for(
      0, sizes.batch * strips, rows_a_thread(sizes.rows * kStrip), [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
          const int64_t sample = s / strips, first = s % strips * kStrip,
                        count = std::min(kStrip, sizes.width - first);
          Real sums[kStrip] = {};
          for (int64_t row = sample * sizes.rows; row < (sample + 1) * sizes.rows; ++row) {
            for (int64_t j = 0; j < count; ++j) sums[j] += term(row, first + j);
          }
          std::copy(sums, sums + count, to.of(sample) + first);
        }
      });
}

// The sums first: dx may be written over dy.
template <typename T, typename Real>
void modulated_norm_backward_cpu(const Sizes& sizes, const T* dy, const T* x, Rows<T> scale,
                                 const Real* mean, const Real* rstd, const T* residual, T* dx,
                                 Rows<Real> scale_grad, Rows<Real> shift_grad) {
  const int64_t width = sizes.width;
  sum_rows(sizes, scale_grad, [=](int64_t row, int64_t j) {
    return static_cast<Real>(dy[row * width + j]) *
           ((static_cast<Real>(x[row * width + j]) - mean[row]) * rstd[row]);
  });
  sum_rows(sizes, shift_grad,
           [=](int64_t row, int64_t j) { return static_cast<Real>(dy[row * width + j]); });
  at::parallel_for(
      0, sizes.batch * sizes.rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T *g = dy + i * width, *v = x + i * width, *by = scale.of(i / sizes.rows);
          const Real r = rstd[i], m = mean[i], count = static_cast<Real>(width);
          auto upper = [=](int64_t j) {
            return static_cast<Real>(g[j]) * (1 + static_cast<Real>(by[j]));
          };
          auto normal = [=](int64_t j) { return (static_cast<Real>(v[j]) - m) * r; };
          const Real mean_g = lane_sum<Real>(width, upper) / count;
          const Real mean_gy =
              lane_sum<Real>(width, [=](int64_t j) { return upper(j) * normal(j); }) / count;
          auto value = [=](int64_t j) { return r * (upper(j) - mean_g - normal(j) * mean_gy); };
          T* to = dx + i * width;
          const T* before = residual ? residual + i * width : nullptr;
#pragma GCC ivdep
          for (int64_t j = 0; j < width; ++j)
            to[j] = static_cast<T>(before ? value(j) + static_cast<Real>(before[j]) : value(j));
        }
      });
}

template <typename T, typename Real>
void gated_add_cpu(const Sizes& sizes, const T* x, const T* add, Rows<T> gate, T* out) {
  at::parallel_for(
      0, sizes.batch * sizes.rows, rows_a_thread(sizes.width), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* by = gate.of(i / sizes.rows);
          const int64_t first = i * sizes.width;
#pragma GCC ivdep
          for (int64_t j = 0; j < sizes.width; ++j)
            out[first + j] =
                static_cast<T>(static_cast<Real>(x[first + j]) +
                               static_cast<Real>(by[j]) * static_cast<Real>(add[first + j]));
        }
      });
}

// The sums first: d_add may be written over either.
template <typename T, typename Real>
void gated_add_backward_cpu(const Sizes& sizes, const T* dy, const T* add, Rows<T> gate, T* d_add,
                            Rows<Real> gate_grad, Rows<Real> add_sum) {
  const int64_t width = sizes.width, rows = sizes.rows;
  sum_rows(sizes, gate_grad, [=](int64_t row, int64_t j) {
    return static_cast<Real>(dy[row * width + j]) * static_cast<Real>(add[row * width + j]);
  });
  sum_rows(sizes, add_sum, [=](int64_t row, int64_t j) {
    return static_cast<Real>(dy[row * width + j]) * static_cast<Real>(gate.of(row / rows)[j]);
  });
  at::parallel_for(0, sizes.batch * rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* by = gate.of(i / rows);
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j)
        d_add[i * width + j] =
            static_cast<T>(static_cast<Real>(dy[i * width + j]) * static_cast<Real>(by[j]));
    }
  });
}

// Space for a GPU's partial sums of two gradients; undefined if none is needed.
Tensor partial_sums(const Sizes& sizes, DType dtype, Device device) {
  const int64_t bytes =
      2 * norm_backward_scratch_bytes(sizes.batch, sizes.rows, sizes.width, dtype, true);
  return bytes ? empty_tensor({bytes / dtype_bytes(real_of(dtype))}, real_of(dtype), device)
               : Tensor();
}

}  // namespace

void modulated_norm(const Tensor& x, const Tensor& add, const Tensor& gate, const Tensor& scale,
                    const Tensor& shift, double epsilon, const Tensor& sum, const Tensor& out,
                    const Tensor& mean, const Tensor& rstd) {
  const Sizes sizes = sizes_of(x);
  const int64_t numel = sizes.numel(), rows = sizes.batch * sizes.rows;
  const DType dtype = x.scalar_type(), real_type = real_of(dtype);
  VEIL_CHECK(
      fits(out, dtype, numel) && fits_rows(scale, dtype, sizes) && fits_rows(shift, dtype, sizes) &&
          shift.stride(0) == scale.stride(0) && fits(mean, real_type, rows) &&
          fits(rstd, real_type, rows) &&
          (!add.defined() || (fits(add, dtype, numel) && fits(sum, dtype, numel) &&
                              fits_rows(gate, dtype, sizes) && gate.stride(0) == scale.stride(0))),
      "modulated_norm of tensors that do not match: {} samples of {} rows of {}", sizes.batch,
      sizes.rows, sizes.width);
  if (numel == 0) return;
  const bool adds = add.defined();
  if (x.is_cuda()) {
    launch::modulated_norm({x.data_ptr(), pointer_or_null(add), scale.data_ptr(), shift.data_ptr(),
                            adds ? sum.data_ptr() : nullptr, out.data_ptr(), mean.data_ptr(),
                            rstd.data_ptr(), element_of(x), rows, sizes.width, epsilon,
                            Stream::current(x.device()).handle(), adds ? gate.data_ptr() : nullptr,
                            sizes.rows, scale.stride(0)});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "modulated_norm", [&] {
    using real = at::opmath_type<scalar_t>;
    modulated_norm_cpu<scalar_t, real>(
        sizes, x.data_ptr<scalar_t>(), static_cast<const scalar_t*>(pointer_or_null(add)),
        adds ? rows_of<scalar_t>(gate) : Rows<scalar_t>{}, rows_of<scalar_t>(scale),
        rows_of<scalar_t>(shift), static_cast<real>(epsilon),
        adds ? sum.data_ptr<scalar_t>() : nullptr, out.data_ptr<scalar_t>(), mean.data_ptr<real>(),
        rstd.data_ptr<real>());
  });
}

void modulated_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale,
                             const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx, const Tensor& scale_grad, const Tensor& shift_grad) {
  const Sizes sizes = sizes_of(x);
  const int64_t numel = sizes.numel(), rows = sizes.batch * sizes.rows;
  const DType dtype = x.scalar_type(), real_type = real_of(dtype);
  VEIL_CHECK(
      fits(dy, dtype, numel) && fits(dx, dtype, numel) && fits_rows(scale, dtype, sizes) &&
          fits(mean, real_type, rows) && fits(rstd, real_type, rows) &&
          absent_or_fits(residual, dtype, numel) && fits_rows(scale_grad, real_type, sizes) &&
          fits_rows(shift_grad, real_type, sizes) && scale_grad.stride(0) == shift_grad.stride(0),
      "modulated_norm_backward of tensors that do not match: {} samples of {} rows of {}",
      sizes.batch, sizes.rows, sizes.width);
  if (sizes.batch * sizes.width == 0) return;
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const Tensor partial = partial_sums(sizes, dtype, x.device());
    launch::modulated_norm_backward(
        {dy.data_ptr(), x.data_ptr(), scale.data_ptr(), mean.data_ptr(), rstd.data_ptr(),
         pointer_or_null(residual), dx.data_ptr(), scale_grad.data_ptr(), shift_grad.data_ptr(),
         pointer_or_null(partial), element_of(x), sizes.batch, sizes.rows, sizes.width,
         Stream::current(x.device()).handle(), scale.stride(0), scale_grad.stride(0)});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "modulated_norm_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    modulated_norm_backward_cpu<scalar_t, real>(
        sizes, dy.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), rows_of<scalar_t>(scale),
        mean.data_ptr<real>(), rstd.data_ptr<real>(),
        static_cast<const scalar_t*>(pointer_or_null(residual)), dx.data_ptr<scalar_t>(),
        rows_of<real>(scale_grad), rows_of<real>(shift_grad));
  });
}

void gated_add(const Tensor& x, const Tensor& add, const Tensor& gate, const Tensor& out) {
  const Sizes sizes = sizes_of(x);
  const DType dtype = x.scalar_type();
  VEIL_CHECK(fits(add, dtype, sizes.numel()) && fits(out, dtype, sizes.numel()) &&
                 fits_rows(gate, dtype, sizes),
             "gated_add of tensors that do not match: {} samples of {} rows of {}", sizes.batch,
             sizes.rows, sizes.width);
  if (sizes.numel() == 0) return;
  if (x.is_cuda()) {
    launch::gated_add({x.data_ptr(), add.data_ptr(), gate.data_ptr(), out.data_ptr(), element_of(x),
                       sizes.batch, sizes.rows, sizes.width, gate.stride(0),
                       Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "gated_add", [&] {
    gated_add_cpu<scalar_t, at::opmath_type<scalar_t>>(
        sizes, x.data_ptr<scalar_t>(), add.data_ptr<scalar_t>(), rows_of<scalar_t>(gate),
        out.data_ptr<scalar_t>());
  });
}

void gated_add_backward(const Tensor& dy, const Tensor& add, const Tensor& gate,
                        const Tensor& d_add, const Tensor& gate_grad, const Tensor& add_sum) {
  const Sizes sizes = sizes_of(dy);
  const DType dtype = dy.scalar_type(), real_type = real_of(dtype);
  VEIL_CHECK(fits(add, dtype, sizes.numel()) && fits(d_add, dtype, sizes.numel()) &&
                 fits_rows(gate, dtype, sizes) && fits_rows(gate_grad, real_type, sizes) &&
                 fits(add_sum, real_type, sizes.batch * sizes.width),
             "gated_add_backward of tensors that do not match: {} samples of {} rows of {}",
             sizes.batch, sizes.rows, sizes.width);
  if (sizes.batch * sizes.width == 0) return;
  if (dy.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const Tensor partial = partial_sums(sizes, dtype, dy.device());
    launch::gated_add_backward(
        {dy.data_ptr(), add.data_ptr(), gate.data_ptr(), d_add.data_ptr(), gate_grad.data_ptr(),
         add_sum.data_ptr(), pointer_or_null(partial), element_of(dy), sizes.batch, sizes.rows,
         sizes.width, gate.stride(0), gate_grad.stride(0), Stream::current(dy.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "gated_add_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    gated_add_backward_cpu<scalar_t, real>(sizes, dy.data_ptr<scalar_t>(), add.data_ptr<scalar_t>(),
                                           rows_of<scalar_t>(gate), d_add.data_ptr<scalar_t>(),
                                           rows_of<real>(gate_grad),
                                           Rows<real>{add_sum.data_ptr<real>(), sizes.width});
  });
}

}  // namespace veil
