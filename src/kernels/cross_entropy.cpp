#include "kernels/cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "kernels/exponential.h"
#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Pieces of a row that stay in the first cache between their maximum and their sum.
constexpr int64_t kPiece = 4096;

template <typename T, typename Real>
void scan_cpu(const T* logits, int64_t first, const int64_t* targets, Real* state, int64_t rows,
              int64_t width) {
  constexpr Real kLowest = -std::numeric_limits<Real>::infinity();
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (targets[i] == kIgnoreTarget) continue;
      const T* row = logits + i * width;
      Real* kept = state + 3 * i;
      Real greatest = first ? kept[0] : kLowest, sum = first ? kept[1] : 0;
      if (first == 0) kept[2] = std::numeric_limits<Real>::quiet_NaN();
      for (int64_t from = 0; from < width; from += kPiece) {
        const T* piece = row + from;
        const int64_t count = std::min(kPiece, width - from);
        const Real upto =
            lane_max(count, greatest, [piece](int64_t j) { return static_cast<Real>(piece[j]); });
        if (upto > greatest) sum *= greatest == kLowest ? Real(0) : exponential(greatest - upto);
        greatest = upto;
        const Real below = greatest == kLowest ? Real(0) : greatest;
        sum += lane_sum<Real>(count, [piece, below](int64_t j) {
          return exponential(static_cast<Real>(piece[j]) - below);
        });
      }
      kept[0] = greatest;
      kept[1] = sum;
      const int64_t at = targets[i] - first;
      if (at >= 0 && at < width) kept[2] = static_cast<Real>(row[at]);
    }
  });
}

template <typename T, typename Real>
void grad_cpu(T* logits, int64_t first, const int64_t* targets, const Real* state,
              const Real* weights, int64_t batch, int64_t rows, int64_t width) {
  const int64_t tokens = rows / batch;
  at::parallel_for(0, rows, rows_a_thread(width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row = logits + i * width;
      const Real weight = weights[i / tokens];
      if (targets[i] == kIgnoreTarget || weight == 0) {
        std::fill(row, row + width, static_cast<T>(0.0f));
        continue;
      }
      const Real greatest = state[3 * i], scale = weight / state[3 * i + 1];
      const int64_t at = targets[i] - first;
      const bool here = at >= 0 && at < width;
      const Real wanted =
          here ? exponential(static_cast<Real>(row[at]) - greatest) * scale - weight : Real(0);
      for (int64_t j = 0; j < width; ++j) {
        row[j] = static_cast<T>(exponential(static_cast<Real>(row[j]) - greatest) * scale);
      }
      if (here) row[at] = static_cast<T>(wanted);
    }
  });
}

template <typename Real>
void losses_cpu(const Real* state, const int64_t* targets, const Real* weights, double* losses,
                int64_t batch, int64_t tokens) {
  at::parallel_for(0, batch, rows_a_thread(tokens), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t row = i * tokens; row < (i + 1) * tokens; ++row) {
        if (targets[row] == kIgnoreTarget) continue;
        const Real* kept = state + 3 * row;
        sum += static_cast<double>(kept[0]) + std::log(static_cast<double>(kept[1])) -
               static_cast<double>(kept[2]);
      }
      losses[i] = weights[i] == 0 ? 0.0 : static_cast<double>(weights[i]) * sum;
    }
  });
}

template <typename Real>
void weights_cpu(const int64_t* targets, Real* weights, int64_t batch, int64_t tokens) {
  at::parallel_for(0, batch, rows_a_thread(tokens), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t valid = 0;
      for (int64_t row = i * tokens; row < (i + 1) * tokens; ++row)
        valid += targets[row] != kIgnoreTarget;
      weights[i] = valid ? Real(1) / static_cast<Real>(valid) : Real(0);
    }
  });
}

bool are_targets(const Tensor& targets, int64_t count) {
  return fits(targets, at::kLong, count);
}

void* stream_of(const Tensor& tensor) {
  return Stream::current(tensor.device()).handle();
}

}  // namespace

void token_weights(const Tensor& targets, const Tensor& weights) {
  const int64_t batch = weights.numel(), tokens = batch ? targets.numel() / batch : 0;
  const DType dtype = weights.scalar_type();
  VEIL_CHECK(are_targets(targets, batch * tokens) && fits(weights, real_of(dtype), batch),
             "weights of {} samples from {}", batch, targets.numel());
  if (batch == 0) return;
  if (targets.is_cuda()) {
    launch::token_weights(targets.data_ptr<int64_t>(), weights.data_ptr(), element_of(weights),
                          batch, tokens, stream_of(targets));
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(dtype, "token_weights", [&] {
    weights_cpu(targets.data_ptr<int64_t>(), weights.data_ptr<scalar_t>(), batch, tokens);
  });
}

void cross_entropy_scan(const Tensor& logits, int64_t first, const Tensor& targets,
                        const Tensor& state) {
  const int64_t rows = targets.numel(), width = rows ? logits.numel() / rows : 0;
  const DType dtype = logits.scalar_type();
  VEIL_CHECK(first >= 0 && fits(logits, dtype, rows * width) && are_targets(targets, rows) &&
                 fits(state, real_of(dtype), 3 * rows),
             "cross_entropy_scan of {} logits for {} targets", logits.numel(), rows);
  if (logits.numel() == 0) return;
  if (logits.is_cuda()) {
    launch::cross_entropy_scan({logits.data_ptr(), element_of(logits), first,
                                targets.data_ptr<int64_t>(), state.data_ptr(), nullptr, 0, rows,
                                width, stream_of(logits)});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "cross_entropy_scan", [&] {
    using real = at::opmath_type<scalar_t>;
    scan_cpu(logits.data_ptr<scalar_t>(), first, targets.data_ptr<int64_t>(),
             state.data_ptr<real>(), rows, width);
  });
}

void cross_entropy_losses(const Tensor& state, const Tensor& targets, const Tensor& weights,
                          const Tensor& losses) {
  const int64_t batch = losses.numel(), rows = targets.numel(), tokens = batch ? rows / batch : 0;
  const DType dtype = state.scalar_type();
  VEIL_CHECK(are_targets(targets, batch * tokens) && fits(state, real_of(dtype), 3 * rows) &&
                 fits(weights, dtype, batch) && fits(losses, at::kDouble, batch),
             "losses of {} samples from {} targets", batch, rows);
  if (batch == 0) return;
  if (state.is_cuda()) {
    launch::cross_entropy_losses(
        {nullptr, element_of(state), 0, targets.data_ptr<int64_t>(), state.data_ptr(),
         weights.data_ptr(), batch, rows, 0, stream_of(state)},
        losses.data_ptr<double>());
    return;
  }
  AT_DISPATCH_FLOATING_TYPES(dtype, "cross_entropy_losses", [&] {
    losses_cpu(state.data_ptr<scalar_t>(), targets.data_ptr<int64_t>(),
               weights.data_ptr<scalar_t>(), losses.data_ptr<double>(), batch, tokens);
  });
}

void cross_entropy_grad(const Tensor& logits, int64_t first, const Tensor& targets,
                        const Tensor& state, const Tensor& weights) {
  const int64_t batch = weights.numel(), rows = targets.numel(),
                width = rows ? logits.numel() / rows : 0;
  const DType dtype = logits.scalar_type(), real_type = real_of(dtype);
  VEIL_CHECK(first >= 0 && fits(logits, dtype, rows * width) && are_targets(targets, rows) &&
                 fits(state, real_type, 3 * rows) && fits(weights, real_type, batch) &&
                 (rows == 0 || (batch > 0 && rows % batch == 0)),
             "cross_entropy_grad of {} logits for {} targets of {} samples", logits.numel(), rows,
             batch);
  if (logits.numel() == 0) return;
  if (logits.is_cuda()) {
    launch::cross_entropy_grad({logits.data_ptr(), element_of(logits), first,
                                targets.data_ptr<int64_t>(), state.data_ptr(), weights.data_ptr(),
                                batch, rows, width, stream_of(logits)});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dtype, "cross_entropy_grad", [&] {
    using real = at::opmath_type<scalar_t>;
    grad_cpu(logits.data_ptr<scalar_t>(), first, targets.data_ptr<int64_t>(),
             state.data_ptr<real>(), weights.data_ptr<real>(), batch, rows, width);
  });
}

}  // namespace veil
