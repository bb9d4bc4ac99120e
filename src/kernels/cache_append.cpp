#include "kernels/cache_append.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>

#include "kernels/launch_decode.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {
namespace {

template <typename T, typename Real>
void cache_append_cpu(const launch::CacheAppend& a) {
  const int64_t all = a.heads + 2 * a.kv_heads, pairs = a.frequencies.count;
  for (int64_t i = 0; i < a.batch; ++i) {
    const int64_t position = a.positions[i];
    T* heads = static_cast<T*>(a.qkv) + i * all * a.head_dim;
    for (int j = 0; j < a.frequencies.count; ++j) {
      const double angle = static_cast<double>(position) * a.frequencies.value[j];
      const Real cosine = static_cast<Real>(a.frequencies.scale * std::cos(angle)),
                 sine = static_cast<Real>(a.frequencies.scale * std::sin(angle));
      for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
        T& low = heads[h * a.head_dim + j];
        T& high = heads[h * a.head_dim + pairs + j];
        const Real x = static_cast<Real>(low), y = static_cast<Real>(high);
        low = static_cast<T>(x * cosine - y * sine);
        high = static_cast<T>(y * cosine + x * sine);
      }
    }
    const int64_t row = a.kv_heads * a.head_dim, place = (i * a.capacity + position) * row;
    const T* own = heads + a.heads * a.head_dim;
    std::copy(own, own + row, static_cast<T*>(a.keys) + place);
    std::copy(own + row, own + 2 * row, static_cast<T*>(a.values) + place);
  }
}

}  // namespace

void cache_append(const Tensor& qkv, const Tensor& keys, const Tensor& values,
                  const Tensor& positions, const RopeFrequencies& frequencies) {
  VEIL_CHECK(qkv.dim() == 3 && qkv.is_contiguous() && keys.dim() == 4 && keys.is_contiguous() &&
                 values.is_contiguous() && values.sizes() == keys.sizes(),
             "cache_append: shapes");
  const int64_t batch = qkv.size(0), head_dim = qkv.size(2), kv_heads = keys.size(2);
  VEIL_CHECK(keys.size(0) == batch && keys.size(3) == head_dim && qkv.size(1) > 2 * kv_heads &&
                 keys.scalar_type() == qkv.scalar_type() &&
                 values.scalar_type() == qkv.scalar_type() && fits(positions, at::kLong, batch),
             "cache_append: {} heads of {} for a cache of {} heads", qkv.size(1), head_dim,
             kv_heads);
  VEIL_CHECK(frequencies.count == 0 || int64_t{2} * frequencies.count <= head_dim,
             "cache_append: {} frequencies for heads of {}", frequencies.count, head_dim);
  if (batch == 0) return;
  const launch::CacheAppend arguments{
      qkv.data_ptr(),
      keys.data_ptr(),
      values.data_ptr(),
      element_of(qkv),
      batch,
      qkv.size(1) - 2 * kv_heads,
      kv_heads,
      head_dim,
      keys.size(1),
      positions.data_ptr<int64_t>(),
      frequencies,
      qkv.is_cuda() ? Stream::current(qkv.device()).handle() : nullptr};
  if (qkv.is_cuda()) return launch::cache_append(arguments);
  for (int64_t i = 0; i < batch; ++i) {
    VEIL_CHECK(arguments.positions[i] >= 0 && arguments.positions[i] < arguments.capacity,
               "position {} in a cache of {}", arguments.positions[i], arguments.capacity);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, qkv.scalar_type(), "cache_append", [&] {
    cache_append_cpu<scalar_t, at::opmath_type<scalar_t>>(arguments);
  });
}

}  // namespace veil
