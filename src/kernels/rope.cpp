#include "kernels/rope.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "kernels/token_sum.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Sines and cosines of one position.
template <typename Real>
struct Turn {
  Real cosine[RopeFrequencies::kMost], sine[RopeFrequencies::kMost];

  void at(int64_t position, const RopeFrequencies& frequencies) {
    for (int j = 0; j < frequencies.count; ++j) {
      const double angle = static_cast<double>(position) * frequencies.value[j];
      cosine[j] = static_cast<Real>(frequencies.scale * std::cos(angle));
      sine[j] = static_cast<Real>(frequencies.scale * std::sin(angle));
    }
  }
};

// to = from turned forwards (sign 1) or back (sign -1); they may be the same.
template <typename T, typename Real>
void turn_head(const T* from, T* to, const Turn<Real>& turn, int64_t pairs, Real sign) {
#pragma GCC ivdep
  for (int64_t j = 0; j < pairs; ++j) {
    const Real a = static_cast<Real>(from[j]), b = static_cast<Real>(from[pairs + j]);
    const Real cosine = turn.cosine[j], sine = sign * turn.sine[j];
    to[j] = static_cast<T>(a * cosine - b * sine);
    to[pairs + j] = static_cast<T>(b * cosine + a * sine);
  }
}

template <typename T, typename Real>
void rope_cpu(T* qkv, int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim,
              int64_t turned, const RopeFrequencies& frequencies) {
  at::parallel_for(0, tokens, rows_a_thread(batch * heads * head_dim),
                   [&](int64_t begin, int64_t end) {
                     Turn<Real> turn;
                     for (int64_t t = begin; t < end; ++t) {
                       turn.at(t, frequencies);
                       for (int64_t i = 0; i < batch; ++i) {
                         for (int64_t h = 0; h < turned; ++h) {
                           T* head = qkv + ((i * tokens + t) * heads + h) * head_dim;
                           turn_head(head, head, turn, frequencies.count, Real(1));
                         }
                       }
                     }
                   });
}

template <typename T, typename Real>
void rope_backward_cpu(const launch::RopeBackward& r) {
  const int64_t all = r.heads + 2 * r.kv_heads;
  at::parallel_for(
      0, r.tokens, rows_a_thread(r.batch * all * r.head_dim), [&](int64_t begin, int64_t end) {
        Turn<Real> turn;
        for (int64_t t = begin; t < end; ++t) {
          turn.at(t, r.frequencies);
          for (int64_t i = 0; i < r.batch; ++i) {
            T* to = static_cast<T*>(r.dqkv) + (i * r.tokens + t) * all * r.head_dim;
            auto pack = [&](const launch::RopeSource& source, int64_t heads, bool turns) {
              for (int64_t h = 0; h < heads; ++h, to += r.head_dim) {
                const T* from = static_cast<const T*>(source.data) + i * source.batch_stride +
                                h * source.head_stride + t * source.token_stride;
                const int64_t pairs = turns ? r.frequencies.count : 0;
                turn_head(from, to, turn, pairs, Real(-1));
                std::copy(from + 2 * pairs, from + r.head_dim, to + 2 * pairs);
              }
            };
            pack(r.dq, r.heads, true);
            pack(r.dk, r.kv_heads, true);
            pack(r.dv, r.kv_heads, false);
          }
        }
      });
}

void check_frequencies(const RopeFrequencies& frequencies, int64_t head_dim) {
  VEIL_CHECK(head_dim % 2 == 0 && int64_t{2} * frequencies.count <= head_dim,
             "rope: {} frequencies for heads of {}", frequencies.count, head_dim);
}

launch::RopeSource source_of(const Tensor& tensor) {
  return {tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

launch::RopeBackward backward_of(const Tensor& dq, const Tensor& dk, const Tensor& dv,
                                 const Tensor& dqkv, const RopeFrequencies& frequencies) {
  VEIL_CHECK(
      dq.dim() == 4 && dk.dim() == 4 && dv.dim() == 4 && dqkv.dim() == 4 && dqkv.is_contiguous(),
      "rope_backward: shapes");
  const int64_t batch = dq.size(0), heads = dq.size(1), tokens = dq.size(2), head_dim = dq.size(3);
  const int64_t kv_heads = dk.size(1);
  for (const Tensor* source : {&dq, &dk, &dv}) {
    VEIL_CHECK(
        source->size(0) == batch && source->size(2) == tokens && source->size(3) == head_dim &&
            (source->stride(3) == 1 || source->numel() == 0) &&
            source->scalar_type() == dqkv.scalar_type(),
        "rope_backward: dq, dk and dv do not match, or their last dimension is not contiguous");
  }
  VEIL_CHECK(dv.size(1) == kv_heads && dqkv.size(0) == batch && dqkv.size(1) == tokens &&
                 dqkv.size(2) == heads + 2 * kv_heads && dqkv.size(3) == head_dim,
             "rope_backward: {} heads and {} of keys do not make {}", heads, kv_heads,
             dqkv.size(2));
  check_frequencies(frequencies, head_dim);
  return {source_of(dq),    source_of(dk),
          source_of(dv),    dqkv.data_ptr(),
          element_of(dqkv), batch,
          tokens,           heads,
          kv_heads,         head_dim,
          frequencies,      dqkv.is_cuda() ? Stream::current(dqkv.device()).handle() : nullptr};
}

}  // namespace

void rope(const Tensor& qkv, int64_t turned, const RopeFrequencies& frequencies) {
  VEIL_CHECK(qkv.dim() == 4 && qkv.is_contiguous() && turned >= 0 && turned <= qkv.size(2),
             "rope of {} heads", turned);
  check_frequencies(frequencies, qkv.size(3));
  if (qkv.numel() == 0 || turned == 0 || frequencies.count == 0) return;
  if (qkv.is_cuda()) {
    launch::rope({qkv.data_ptr(), element_of(qkv), qkv.size(0), qkv.size(1), qkv.size(2),
                  qkv.size(3), turned, frequencies, Stream::current(qkv.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, qkv.scalar_type(), "rope", [&] {
    rope_cpu<scalar_t, at::opmath_type<scalar_t>>(qkv.data_ptr<scalar_t>(), qkv.size(0),
                                                  qkv.size(1), qkv.size(2), qkv.size(3), turned,
                                                  frequencies);
  });
}

void rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dqkv,
                   const RopeFrequencies& frequencies) {
  const launch::RopeBackward arguments = backward_of(dq, dk, dv, dqkv, frequencies);
  if (dqkv.numel() == 0) return;
  if (dqkv.is_cuda()) return launch::rope_backward(arguments);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, dqkv.scalar_type(), "rope_backward",
      [&] { rope_backward_cpu<scalar_t, at::opmath_type<scalar_t>>(arguments); });
}

void pack_heads(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dqkv,
                const Tensor& sums) {
  const Tensor rows = dqkv.flatten(2);
  VEIL_CHECK(fits(sums, real_of(dqkv.scalar_type()), rows.size(0) * rows.size(2)),
             "pack_heads into {} sums", sums.numel());
  if (!dqkv.is_cuda() || dqkv.numel() == 0) {
    rope_backward(dq, dk, dv, dqkv, {});
    return token_sum(rows, sums);
  }
  launch::RopeBackward arguments = backward_of(dq, dk, dv, dqkv, {});
  const Tensor partial = token_sum_scratch(rows);
  arguments.sums = sums.data_ptr(), arguments.partial = pointer_or_null(partial);
  launch::pack_heads(arguments);
}

}  // namespace veil
