// Ranks that share a GPU, or have one each: the same collectives on device memory.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ranks/rank_harness.h"

namespace veil {
namespace {

void all_collectives_follow_the_compute_stream(Communicator& comm, Device device) {
  const int rank = comm.rank(), size = comm.size();
  // from one to several rounds of the staging area
  for (const int64_t n : {1, 1001, 700'001, 3'000'017}) {
    for (const DType dtype : {at::kFloat, at::kBFloat16}) {
      const auto options = at::TensorOptions(dtype).device(device);
      const Tensor whole = at::zeros({n * size}, options), shard = at::full({n}, rank + 1, options);
      comm.all_gather(shard, whole)->wait();
      for (int r = 0; r < size; ++r)
        EXPECT_TRUE(whole.narrow(0, r * n, n).eq(r + 1).all().item<bool>());
      whole.fill_(rank + 1);  // not waited for: the collective starts after it
      comm.reduce_scatter(whole, shard)->wait();
      const double sum = size * (size + 1) / 2.0;
      EXPECT_TRUE(shard.eq(sum).all().item<bool>());
      const Tensor rows = at::zeros({2, n * size}, options),
                   received = at::zeros({2 * size, n}, options);
      for (int r = 0; r < size; ++r) rows.narrow(1, r * n, n).fill_(10 * rank + r);
      rows.select(0, 1).add_(100);
      comm.all_to_all(rows, received)->wait();
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(received.select(0, 2 * r).eq(10 * r + rank).all().item<bool>());
        EXPECT_TRUE(received.select(0, 2 * r + 1).eq(10 * r + rank + 100).all().item<bool>());
      }
      shard.fill_(rank + 1);
      comm.all_reduce(shard)->wait();
      EXPECT_TRUE(shard.eq(sum).all().item<bool>());
      shard.fill_(rank);
      comm.broadcast(shard, size - 1)->wait();
      EXPECT_TRUE(shard.eq(size - 1).all().item<bool>());
    }
  }
  comm.set_timing(true);
  const Tensor data = at::zeros({1000}, at::TensorOptions(at::kFloat).device(device));
  const PendingPtr pending = comm.all_reduce(data);
  pending->wait();
  EXPECT_GE(pending->ended().ms_since(pending->began()), 0);
  comm.barrier();
}

TEST(GpuRankCollectives, RanksShareAGpuThroughTheHost) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  const Device device = gpu_device(0);
  const auto comm = make_host_communicator(0, device);
  EXPECT_FALSE(comm->why_not_capturable().empty());
  all_collectives_follow_the_compute_stream(*comm, device);
}

TEST(GpuRankCollectives, RanksWithAGpuEachUseNccl) {
  const int rank = cpu_ranks()->rank(), size = cpu_ranks()->size();
  if (!built_with_nccl() || gpu_count() < size) GTEST_SKIP() << "fewer GPUs than ranks, or no NCCL";
  const Device device = gpu_device(rank);
  all_collectives_follow_the_compute_stream(*make_nccl_communicator(0, device), device);
}

}  // namespace
}  // namespace veil
