#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "tensor/stream.h"

namespace veil {
namespace {

TEST(Simulated, AllGatherFillsTheOwnSlotExactlyAndTheOthersWithValuesOfTheSameSpread) {
  for (const int rank : {0, 3, 7}) {
    const auto comm = make_simulated_communicator(rank, 8, cpu_device());
    const int64_t n = 1001;
    const Tensor shard = at::randn({n}), whole = at::full({8 * n}, 1e9f);
    comm->all_gather(shard, whole)->wait();
    for (int r = 0; r < 8; ++r) {
      const Tensor slot = whole.narrow(0, r * n, n);
      EXPECT_EQ(at::equal(slot, shard), r == rank) << r;
      EXPECT_TRUE(at::equal(std::get<0>(slot.sort()), std::get<0>(shard.sort()))) << r;
      EXPECT_EQ(at::equal(slot, whole.narrow(0, 0, n)), r == 0)
          << "slots 0 and " << r << " are alike";
    }
  }
}

TEST(Simulated, NoTwoSlotsOfLargeShardsAreAlike) {
  constexpr int kRanks = 64;
  const auto comm = make_simulated_communicator(5, kRanks, cpu_device());
  for (const int64_t n : {1'048'576, 1'048'577, 1'125'888}) {
    const Tensor shard = at::arange(n, at::kInt), whole = at::zeros({kRanks * n}, at::kInt);
    comm->all_gather(shard, whole)->wait();
    const Tensor firsts = whole.view({kRanks, n}).select(1, 0);  // each number is there once
    EXPECT_EQ(std::get<0>(at::_unique(firsts)).numel(), kRanks) << n;
  }
}

TEST(Simulated, AllGatherWorksInPlaceForEverySizeAndType) {
  const auto comm = make_simulated_communicator(1, 3, cpu_device());
  for (const int64_t n : {0, 1, 2, 5}) {
    for (const DType dtype : {at::kBFloat16, at::kLong}) {
      const Tensor whole = at::zeros({3 * n}, dtype);
      const Tensor shard = whole.narrow(0, n, n);
      shard.copy_(at::arange(1, n + 1));
      const Tensor expected = shard.clone();
      comm->all_gather(shard, whole)->wait();
      EXPECT_TRUE(at::equal(shard, expected));
      EXPECT_FALSE(whole.eq(0).any().item<bool>()) << "a slot was left empty";
    }
  }
}

TEST(Simulated, SumsAreTheOwnContribution) {
  const auto comm = make_simulated_communicator(2, 4, cpu_device());
  const Tensor whole = at::randn({40}), shard = at::zeros({10});
  comm->reduce_scatter(whole, shard)->wait();
  EXPECT_TRUE(at::equal(shard, whole.narrow(0, 20, 10)));
  const Tensor data = whole.clone();
  comm->all_reduce(data)->wait();
  EXPECT_TRUE(at::equal(data, whole));
}

// Of the columns that this rank owns: others would be of other parameters, or of no parameter at all.
// Rotated as what is gathered of them, so that the two belong together.
TEST(Simulated, APeersRowsAreTheOwnOnes) {
  constexpr int64_t kRows = 4, kColumns = 5;
  const auto comm = make_simulated_communicator(2, 3, cpu_device());
  const Tensor rows = at::randn({kRows, 3 * kColumns}), received = at::zeros({3 * kRows, kColumns}),
               numbers = at::arange(kRows), gathered = at::zeros({3 * kRows}, at::kLong);
  comm->all_to_all(rows, received)->wait();
  comm->all_gather(numbers, gathered)->wait();
  for (int64_t p = 0; p < 3; ++p) {
    for (int64_t i = p * kRows; i < (p + 1) * kRows; ++i) {
      const Tensor sent = rows[gathered[i].item<int64_t>()].narrow(0, 2 * kColumns, kColumns);
      EXPECT_TRUE(at::equal(received[i], sent)) << i;
    }
  }
  EXPECT_TRUE(at::equal(gathered.narrow(0, 2 * kRows, kRows), numbers));
}

TEST(Simulated, TimesFollowTheRing) {
  const auto comm = make_simulated_communicator(0, 4, cpu_device(),
                                                {.bandwidth_bytes_per_s = 1e9, .latency_s = 1e-3});
  const Tensor shard = at::zeros({250'000}),
               whole = at::zeros({1'000'000});  // 1 MB shards: 1 ms a message and 1 ms latency
  EXPECT_NEAR(comm->all_gather(shard, whole)->modelled_ms(), 3 * 2.0, 1e-9);
  EXPECT_NEAR(comm->reduce_scatter(whole, shard)->modelled_ms(), 3 * 2.0, 1e-9);
  EXPECT_NEAR(comm->all_to_all(whole.view({2, -1}), at::zeros({8, 125'000}))->modelled_ms(),
              3 * 2.0, 1e-9);
  EXPECT_NEAR(comm->all_reduce(whole)->modelled_ms(), 6 * 2.0, 1e-9);
  EXPECT_NEAR(comm->broadcast(shard, 0)->modelled_ms(), 3 * 1.0 + 1.0, 1e-9);
  const auto alone = make_simulated_communicator(0, 1, cpu_device());
  EXPECT_EQ(alone->all_reduce(whole)->modelled_ms(), 0);
  EXPECT_EQ(alone->broadcast(whole, 0)->modelled_ms(), 0);
}

TEST(Simulated, AWorldOfOneNeedsNoLauncher) {
  const auto comm = make_host_communicator(0, cpu_device());
  EXPECT_EQ(comm->backend(), "host");
  EXPECT_EQ(comm->size(), 1);
  const Tensor data = at::randn({5}), whole = at::zeros({5});
  comm->all_gather(data, whole)->wait();
  EXPECT_TRUE(at::equal(data, whole));
}

// On a GPU, eagerly and replayed from a graph: the results and their order with the compute stream.
void gathers_and_reduces_on_gpu(Communicator& comm) {
  const Device device = gpu_device(0);
  const StreamGuard guard(Stream::create(device));  // the default stream cannot be captured
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const int64_t n = 100'003;
  const Tensor shard = at::zeros({n}, options), whole = at::zeros({comm.size() * n}, options),
               sum = at::zeros({n}, options), rows = at::zeros({2, comm.size() * n}, options),
               received = at::zeros({2 * comm.size(), n}, options);
  const auto work = [&] {
    shard.add_(1);
    comm.all_gather(shard, whole)->wait();
    whole.mul_(2);
    comm.reduce_scatter(whole, sum)->wait();
    sum.add_(1);
    rows.add_(1);
    rows.select(0, 1).add_(1);
    comm.all_to_all(rows, received)->wait();
    received.mul_(3);
  };
  const auto expect_received = [&](int runs) {
    const Tensor own = received.narrow(0, 2 * comm.rank(), 2);
    EXPECT_TRUE(own.select(0, 0).eq(3 * runs).all().item<bool>());
    EXPECT_TRUE(own.select(0, 1).eq(6 * runs).all().item<bool>());
  };
  work();
  synchronize(device);
  expect_received(1);
  EXPECT_TRUE(sum.eq(3).all().item<bool>());
  ASSERT_EQ(comm.why_not_capturable(), "");
  comm.set_timing(true);
  PendingPtr timed;
  Graph graph = Graph::capture(device, [&] {
    work();
    timed = comm.all_reduce(sum);
    timed->wait();
  });
  graph.replay();
  graph.replay();
  synchronize(device);
  EXPECT_TRUE(sum.eq(2 * 3 + 1).all().item<bool>()) << sum[0].item<float>();
  expect_received(3);
  EXPECT_GE(timed->ended().ms_since(timed->began()), 0);
  comm.set_timing(false);
}

TEST(GpuSimulated, CollectivesOrderThemselvesWithTheComputeStreamAndCanBeCaptured) {
  if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
  gathers_and_reduces_on_gpu(*make_simulated_communicator(1, 4, gpu_device(0)));
}

TEST(GpuNccl, AWorldOfOneGathersReducesAndCanBeCaptured) {
  if (gpu_count() == 0 || !built_with_nccl()) GTEST_SKIP() << "no GPU or no NCCL";
  const auto comm = make_nccl_communicator(0, gpu_device(0));
  EXPECT_EQ(comm->size(), 1);
  comm->barrier();
  gathers_and_reduces_on_gpu(*comm);
}

}  // namespace
}  // namespace veil
