// What every backend demands of the tensors it is given. Each throws std::logic_error.
#pragma once

#include "comm/communicator.h"

namespace veil {

void check_all_gather(const Tensor& shard, const Tensor& whole, int size, Device device);
void check_reduce_scatter(const Tensor& whole, const Tensor& shard, int size, Device device);
void check_all_reduce(const Tensor& data, Device device);
void check_broadcast(const Tensor& data, int root, int size, Device device);

}  // namespace veil
