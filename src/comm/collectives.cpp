#include "comm/collectives.h"

#include <algorithm>

#include "base/error.h"

namespace veil {
namespace {

constexpr int64_t kBlock = 2048;  // elements whose partial sums stay in the first cache

template <typename T, typename Sum>
void sum_as(std::span<const void* const> terms, T* out, int64_t count) {
  Sum partial[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(terms[0]) + begin;
    for (int64_t i = 0; i < n; ++i) partial[i] = static_cast<Sum>(first[i]);
    for (size_t r = 1; r < terms.size(); ++r) {
      const T* term = static_cast<const T*>(terms[r]) + begin;
      for (int64_t i = 0; i < n; ++i) partial[i] += static_cast<Sum>(term[i]);
    }
    for (int64_t i = 0; i < n; ++i) out[begin + i] = static_cast<T>(partial[i]);
  }
}

}  // namespace

bool can_sum(DType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 ||
         dtype == at::kHalf;
}

void sum_in_rank_order(DType dtype, std::span<const void* const> terms, void* out, int64_t count) {
  VEIL_CHECK(!terms.empty(), "a sum of nothing");
  switch (dtype) {
    case at::kFloat:
      return sum_as<float, float>(terms, static_cast<float*>(out), count);
    case at::kDouble:
      return sum_as<double, double>(terms, static_cast<double*>(out), count);
    case at::kBFloat16:
      return sum_as<c10::BFloat16, float>(terms, static_cast<c10::BFloat16*>(out), count);
    case at::kHalf:
      return sum_as<c10::Half, float>(terms, static_cast<c10::Half*>(out), count);
    default:
      check_failed(__FILE__, __LINE__, "not reached",
                   fmt::format("sums of type {} are not defined", dtype_name(dtype)));
  }
}

namespace {

void check_tensor(const Tensor& tensor, Device device, const char* call) {
  VEIL_CHECK(tensor.defined(), "{}: an undefined tensor", call);
  VEIL_CHECK(tensor.is_contiguous(), "{}: the tensor is not contiguous", call);
  VEIL_CHECK(tensor.device().type() == device.type(), "{}: a tensor on {} for a communicator on {}",
             call, tensor.device().str(), device.str());
}

void check_pair(const Tensor& shard, const Tensor& whole, int size, Device device,
                const char* call) {
  check_tensor(shard, device, call);
  check_tensor(whole, device, call);
  VEIL_CHECK(shard.scalar_type() == whole.scalar_type(), "{}: shard is {}, whole is {}", call,
             dtype_name(shard.scalar_type()), dtype_name(whole.scalar_type()));
  VEIL_CHECK(whole.numel() == shard.numel() * size,
             "{}: whole has {} elements, {} shards of {} were expected", call, whole.numel(), size,
             shard.numel());
}

void check_summable(const Tensor& tensor, const char* call) {
  VEIL_CHECK(can_sum(tensor.scalar_type()), "{}: sums of type {} are not defined", call,
             dtype_name(tensor.scalar_type()));
}

}  // namespace

void check_all_gather(const Tensor& shard, const Tensor& whole, int size, Device device) {
  check_pair(shard, whole, size, device, "all_gather");
}

void check_reduce_scatter(const Tensor& whole, const Tensor& shard, int size, Device device) {
  check_pair(shard, whole, size, device, "reduce_scatter");
  check_summable(whole, "reduce_scatter");
}

void check_all_to_all(const Tensor& rows, const Tensor& received, int size, Device device) {
  check_tensor(rows, device, "all_to_all");
  check_tensor(received, device, "all_to_all");
  VEIL_CHECK(rows.scalar_type() == received.scalar_type(), "all_to_all: {} rows are received as {}",
             dtype_name(rows.scalar_type()), dtype_name(received.scalar_type()));
  VEIL_CHECK(rows.dim() == 2 && received.dim() == 2 && received.size(0) == rows.size(0) * size &&
                 rows.size(1) == received.size(1) * size,
             "all_to_all: {} rows of {} among {} ranks are received as {} of {}", rows.size(0),
             rows.size(-1), size, received.size(0), received.size(-1));
}

void check_all_reduce(const Tensor& data, Device device) {
  check_tensor(data, device, "all_reduce");
  check_summable(data, "all_reduce");
}

void check_broadcast(const Tensor& data, int root, int size, Device device) {
  check_tensor(data, device, "broadcast");
  VEIL_CHECK(root >= 0 && root < size, "broadcast: root {} of {} ranks", root, size);
}

}  // namespace veil
