#include "comm/collective_checks.h"

#include "base/error.h"
#include "comm/rank_sum.h"

namespace veil {
namespace {

void check_tensor(const Tensor& tensor, Device device, const char* call) {
  VEIL_CHECK(tensor.defined(), "{}: an undefined tensor", call);
  VEIL_CHECK(tensor.is_contiguous(), "{}: the tensor is not contiguous", call);
  VEIL_CHECK(tensor.device().type() == device.type(), "{}: a tensor on {} for a communicator on {}", call,
             tensor.device().str(), device.str());
}

void check_pair(const Tensor& shard, const Tensor& whole, int size, Device device, const char* call) {
  check_tensor(shard, device, call);
  check_tensor(whole, device, call);
  VEIL_CHECK(shard.scalar_type() == whole.scalar_type(), "{}: shard is {}, whole is {}", call,
             dtype_name(shard.scalar_type()), dtype_name(whole.scalar_type()));
  VEIL_CHECK(whole.numel() == shard.numel() * size, "{}: whole has {} elements, {} shards of {} were expected", call,
             whole.numel(), size, shard.numel());
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

void check_all_reduce(const Tensor& data, Device device) {
  check_tensor(data, device, "all_reduce");
  check_summable(data, "all_reduce");
}

void check_broadcast(const Tensor& data, int root, int size, Device device) {
  check_tensor(data, device, "broadcast");
  VEIL_CHECK(root >= 0 && root < size, "broadcast: root {} of {} ranks", root, size);
}

}  // namespace veil
