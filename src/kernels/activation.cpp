#include "kernels/activation.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <numbers>
#include <type_traits>

#include "kernels/exponential.h"
#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "kernels/token_sum.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// 1 / (1 + e^-x). GELU by tanh needs nothing else: (1 + tanh(u)) / 2 = sigmoid(2 u).
template <typename Real>
inline Real sigmoid(Real x) {
  return 1 / (1 + exponential(-x));
}

constexpr double kGeluInner = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

template <typename Real>
inline Real gelu_gate(Real x) {
  return sigmoid(static_cast<Real>(kGeluInner) * (x + static_cast<Real>(kGeluCubic) * x * x * x));
}
// d/dx of x * gelu_gate(x).
template <typename Real>
inline Real gelu_slope(Real x, Real gate) {
  const Real inner =
      static_cast<Real>(kGeluInner) * (1 + 3 * static_cast<Real>(kGeluCubic) * x * x);
  return gate + x * gate * (1 - gate) * inner;
}

// Phi(x), by which the exact GELU opens; d/dx of x Phi(x).
template <typename Real>
inline Real normal_gate(Real x) {
  return static_cast<Real>(0.5) * (1 + std::erf(x * static_cast<Real>(std::numbers::sqrt2 / 2)));
}
template <typename Real>
inline Real normal_slope(Real x, Real gate) {
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return gate + x * static_cast<Real>(kDensity) * std::exp(static_cast<Real>(-0.5) * x * x);
}

// The ways to open a gate: out = x * gate(x), and d out / dx = slope(x, gate(x)).
struct Silu {
  template <typename Real>
  static Real gate(Real x) {
    return sigmoid(x);
  }
  template <typename Real>
  static Real slope(Real x, Real gate) {
    return gate + x * gate * (1 - gate);
  }
};
struct TanhGelu {
  template <typename Real>
  static Real gate(Real x) {
    return gelu_gate(x);
  }
  template <typename Real>
  static Real slope(Real x, Real gate) {
    return gelu_slope(x, gate);
  }
};
struct ExactGelu {
  template <typename Real>
  static Real gate(Real x) {
    return normal_gate(x);
  }
  template <typename Real>
  static Real slope(Real x, Real gate) {
    return normal_slope(x, gate);
  }
};

template <typename By, typename T, typename Real>
void swiglu_cpu(const T* gate_up, T* out, int64_t rows, int64_t width) {
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *gate = gate_up + i * 2 * width, *up = gate + width;
      T* to = out + i * width;
      for (int64_t j = 0; j < width; ++j) {
        const Real g = static_cast<Real>(gate[j]);
        to[j] = static_cast<T>(g * By::gate(g) * static_cast<Real>(up[j]));
      }
    }
  });
}

template <typename By, typename T, typename Real, bool kOut>
void swiglu_backward_cpu(const T* gate_up, const T* grad, T* d_gate_up, T* out, int64_t rows,
                         int64_t width) {
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *gate = gate_up + i * 2 * width, *up = gate + width, *upper = grad + i * width;
      T *d_gate = d_gate_up + i * 2 * width, *d_up = d_gate + width,
        *to = kOut ? out + i * width : nullptr;
#pragma GCC ivdep
      for (int64_t j = 0; j < width; ++j) {
        const Real g = static_cast<Real>(gate[j]), u = static_cast<Real>(up[j]),
                   d = static_cast<Real>(upper[j]);
        const Real s = By::gate(g), opened = g * s;
        d_gate[j] = static_cast<T>(d * u * By::slope(g, s));
        d_up[j] = static_cast<T>(d * opened);
        if constexpr (kOut) to[j] = static_cast<T>(opened * u);
      }
    }
  });
}

template <typename By, typename T, typename Real>
void gelu_cpu(const T* x, T* out, int64_t numel) {
  at::parallel_for(0, numel, 1 << 13, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t j = begin; j < end; ++j) {
      const Real value = static_cast<Real>(x[j]);
      out[j] = static_cast<T>(value * By::gate(value));
    }
  });
}

template <typename By, typename T, typename Real, bool kOut>
void gelu_backward_cpu(const T* x, const T* grad, T* dx, T* out, int64_t numel) {
  at::parallel_for(0, numel, 1 << 13, [&](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t j = begin; j < end; ++j) {
      const Real value = static_cast<Real>(x[j]), d = static_cast<Real>(grad[j]),
                 gate = By::gate(value);
      dx[j] = static_cast<T>(d * By::slope(value, gate));
      if constexpr (kOut) out[j] = static_cast<T>(value * gate);
    }
  });
}

template <typename By>
void gated(const Tensor& gate_up, const Tensor& out) {
  const DType dtype = gate_up.scalar_type();
  const int64_t width = out.dim() ? out.size(-1) : 1, rows = width ? out.numel() / width : 0;
  VEIL_CHECK(gate_up.dim() == out.dim() && gate_up.size(-1) == 2 * width &&
                 fits(gate_up, dtype, 2 * rows * width) && fits(out, dtype, rows * width),
             "swiglu of {} elements into {}", gate_up.numel(), out.numel());
  if (out.numel() == 0) return;
  if (out.is_cuda()) {
    launch::swiglu({gate_up.data_ptr(), nullptr, nullptr, out.data_ptr(), element_of(out), rows,
                    width, Stream::current(out.device()).handle(), std::is_same_v<By, TanhGelu>});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "swiglu", [&] {
    swiglu_cpu<By, scalar_t, at::opmath_type<scalar_t>>(gate_up.data_ptr<scalar_t>(),
                                                        out.data_ptr<scalar_t>(), rows, width);
  });
}

template <typename By>
void gated_backward(const Tensor& gate_up, const Tensor& grad, const Tensor& d_gate_up,
                    const Tensor& out) {
  const DType dtype = gate_up.scalar_type();
  const int64_t width = grad.dim() ? grad.size(-1) : 1, rows = width ? grad.numel() / width : 0;
  VEIL_CHECK(gate_up.dim() == grad.dim() && gate_up.size(-1) == 2 * width &&
                 fits(gate_up, dtype, 2 * rows * width) &&
                 fits(d_gate_up, dtype, 2 * rows * width) && fits(grad, dtype, rows * width) &&
                 absent_or_fits(out, dtype, rows * width),
             "swiglu_backward of {} elements by {}", gate_up.numel(), grad.numel());
  if (grad.numel() == 0) return;
  if (grad.is_cuda()) {
    launch::swiglu_backward({gate_up.data_ptr(), grad.data_ptr(), d_gate_up.data_ptr(),
                             pointer_or_null(out), element_of(grad), rows, width,
                             Stream::current(grad.device()).handle(),
                             std::is_same_v<By, TanhGelu>});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "swiglu_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    (out.defined() ? swiglu_backward_cpu<By, scalar_t, real, true>
                   : swiglu_backward_cpu<By, scalar_t, real, false>)(gate_up.data_ptr<scalar_t>(),
                                                                     grad.data_ptr<scalar_t>(),
                                                                     d_gate_up.data_ptr<scalar_t>(),
                                                                     static_cast<scalar_t*>(
                                                                         pointer_or_null(out)),
                                                                     rows, width);
  });
}

template <typename By>
void opened(const Tensor& x, const Tensor& out) {
  const DType dtype = x.scalar_type();
  VEIL_CHECK(fits(x, dtype, x.numel()) && fits(out, dtype, x.numel()),
             "gelu of {} elements into {}", x.numel(), out.numel());
  if (x.numel() == 0) return;
  if (x.is_cuda()) {
    launch::gelu({x.data_ptr(), nullptr, nullptr, out.data_ptr(), element_of(x), x.numel(),
                  Stream::current(x.device()).handle(), std::is_same_v<By, ExactGelu>});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "gelu", [&] {
    gelu_cpu<By, scalar_t, at::opmath_type<scalar_t>>(x.data_ptr<scalar_t>(),
                                                      out.data_ptr<scalar_t>(), x.numel());
  });
}

void check_opened(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out) {
  const DType dtype = x.scalar_type();
  VEIL_CHECK(fits(x, dtype, x.numel()) && fits(grad, dtype, x.numel()) &&
                 fits(dx, dtype, x.numel()) && absent_or_fits(out, dtype, x.numel()),
             "gelu_backward of {} elements by {}", x.numel(), grad.numel());
}

launch::Gelu opened_on_gpu(const Tensor& x, const Tensor& grad, const Tensor& dx,
                           const Tensor& out) {
  return {x.data_ptr(),
          grad.data_ptr(),
          dx.data_ptr(),
          pointer_or_null(out),
          element_of(x),
          x.numel(),
          Stream::current(x.device()).handle()};
}

template <typename By>
void opened_backward(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out) {
  const DType dtype = x.scalar_type();
  check_opened(x, grad, dx, out);
  if (x.numel() == 0) return;
  if (x.is_cuda()) {
    launch::Gelu gelu = opened_on_gpu(x, grad, dx, out);
    gelu.exact = std::is_same_v<By, ExactGelu>;
    return launch::gelu_backward(gelu);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "gelu_backward", [&] {
    using real = at::opmath_type<scalar_t>;
    (out.defined() ? gelu_backward_cpu<By, scalar_t, real, true>
                   : gelu_backward_cpu<By, scalar_t, real, false>)(x.data_ptr<scalar_t>(),
                                                                   grad.data_ptr<scalar_t>(),
                                                                   dx.data_ptr<scalar_t>(),
                                                                   static_cast<scalar_t*>(
                                                                       pointer_or_null(out)),
                                                                   x.numel());
  });
}

}  // namespace

void swiglu(const Tensor& gate_up, const Tensor& out) {
  gated<Silu>(gate_up, out);
}
void swiglu_backward(const Tensor& gate_up, const Tensor& grad, const Tensor& d_gate_up,
                     const Tensor& out) {
  gated_backward<Silu>(gate_up, grad, d_gate_up, out);
}

void geglu(const Tensor& gate_up, const Tensor& out) {
  gated<TanhGelu>(gate_up, out);
}
void geglu_backward(const Tensor& gate_up, const Tensor& grad, const Tensor& d_gate_up,
                    const Tensor& out) {
  gated_backward<TanhGelu>(gate_up, grad, d_gate_up, out);
}

void gelu(const Tensor& x, const Tensor& out) {
  opened<TanhGelu>(x, out);
}
void gelu_backward(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out) {
  opened_backward<TanhGelu>(x, grad, dx, out);
}
void gelu_backward_summed(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out,
                          const Tensor& sums) {
  const DType dtype = x.scalar_type();
  VEIL_CHECK(x.dim() == 3 && fits(sums, real_of(dtype), x.size(0) * x.size(2)),
             "gelu_backward_summed into {} sums", sums.numel());
  if (!x.is_cuda() || x.numel() == 0) {
    gelu_backward(x, grad, dx, out);
    return token_sum(dx.view(x.sizes()), sums);
  }
  check_opened(x, grad, dx, out);
  const Tensor partial = token_sum_scratch(x);
  launch::Gelu gelu = opened_on_gpu(x, grad, dx, out);
  gelu.batch = x.size(0), gelu.tokens = x.size(1), gelu.width = x.size(2);
  gelu.sums = sums.data_ptr(), gelu.partial = pointer_or_null(partial);
  launch::gelu_backward_summed(gelu);
}

void gelu_erf(const Tensor& x, const Tensor& out) {
  opened<ExactGelu>(x, out);
}
void gelu_erf_backward(const Tensor& x, const Tensor& grad, const Tensor& dx, const Tensor& out) {
  opened_backward<ExactGelu>(x, grad, dx, out);
}

}  // namespace veil
