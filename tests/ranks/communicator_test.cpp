#include "comm/communicator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <vector>

#include "ranks/rank_harness.h"

namespace veil {
namespace {

const std::vector<int64_t> kSizes = {0, 1, 3, 17,
                                     // the last takes several rounds of the staging area
                                     1000, 70001, 1500007};

// What rank r contributes: every rank can make every rank's.
Tensor contribution(int rank, int64_t count, DType dtype, int64_t salt = 0) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * salt + rank + 1));
  return at::rand({count}, generator, at::TensorOptions(at::kDouble))
      .sub_(0.5)
      .mul_(rank % 2 ? 1e4 : 1.0)
      .to(dtype);
}

// The definition: left to right, in fp32 for the short types, rounded once.
Tensor serial_sum(const std::vector<Tensor>& terms) {
  const DType dtype = terms[0].scalar_type();
  const DType wide = dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
  Tensor sum = terms[0].to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (size_t r = 1; r < terms.size(); ++r) sum.add_(terms[r].to(wide));
  return sum.to(dtype);
}

Tensor expected_sum(int size, int64_t count, DType dtype, int64_t salt = 0) {
  std::vector<Tensor> terms;
  for (int r = 0; r < size; ++r) terms.push_back(contribution(r, count, dtype, salt));
  return serial_sum(terms);
}

class Collectives : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Communicator> comm_ = cpu_ranks();
  int rank_ = comm_->rank(), size_ = comm_->size();
};
INSTANTIATE_TEST_SUITE_P(Types, Collectives,
                         testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf),
                         [](const auto& type) { return dtype_name(type.param); });

TEST_P(Collectives, AllGatherPutsEveryShardInItsSlot) {
  for (const int64_t n : kSizes) {
    const Tensor whole = at::full({n * size_}, -1, GetParam());
    comm_->all_gather(contribution(rank_, n, GetParam()), whole)->wait();
    for (int r = 0; r < size_; ++r)
      EXPECT_TRUE(at::equal(whole.narrow(0, r * n, n), contribution(r, n, GetParam()))) << n;
  }
}

TEST_P(Collectives, AllGatherWorksInPlace) {
  const int64_t n = 4099;
  const Tensor whole = at::full({n * size_}, -1, GetParam());
  const Tensor shard = whole.narrow(0, rank_ * n, n);
  shard.copy_(contribution(rank_, n, GetParam()));
  comm_->all_gather(shard, whole)->wait();
  for (int r = 0; r < size_; ++r)
    EXPECT_TRUE(at::equal(whole.narrow(0, r * n, n), contribution(r, n, GetParam())));
}

TEST_P(Collectives, ReduceScatterAddsInRankOrder) {
  for (const int64_t n : kSizes) {
    const Tensor whole = contribution(rank_, n * size_, GetParam(), 1);
    const Tensor before = whole.clone();
    const Tensor shard = at::full({n}, -1, GetParam());
    comm_->reduce_scatter(whole, shard)->wait();
    EXPECT_TRUE(
        at::equal(shard, expected_sum(size_, n * size_, GetParam(), 1).narrow(0, rank_ * n, n)))
        << n;
    EXPECT_TRUE(at::equal(whole, before)) << "the input was changed";
  }
}

TEST_P(Collectives, ReduceScatterWorksInPlace) {
  const int64_t n = 700001;
  const Tensor whole = contribution(rank_, n * size_, GetParam(), 2);
  const Tensor shard = whole.narrow(0, rank_ * n, n);
  comm_->reduce_scatter(whole, shard)->wait();
  EXPECT_TRUE(
      at::equal(shard, expected_sum(size_, n * size_, GetParam(), 2).narrow(0, rank_ * n, n)));
}

TEST_P(Collectives, AllToAllBringsEveryRanksRowsOfTheOwnColumns) {
  for (const int64_t n : kSizes) {
    for (const int64_t rows : {0, 1, 3}) {
      const auto all_of = [&](int rank) {
        return contribution(rank, rows * n * size_, GetParam(), 5).view({rows, n * size_});
      };
      const Tensor mine = all_of(rank_), before = mine.clone();
      const Tensor received = at::full({rows * size_, n}, -1, GetParam());
      comm_->all_to_all(mine, received)->wait();
      for (int r = 0; r < size_; ++r)
        EXPECT_TRUE(
            at::equal(received.narrow(0, r * rows, rows), all_of(r).narrow(1, rank_ * n, n)))
            << rows << " rows of " << n << " from rank " << r;
      EXPECT_TRUE(at::equal(mine, before)) << "the input was changed";
    }
  }
}

TEST_P(Collectives, AllReduceHasTheBitsOfTheSerialSumForEverySize) {
  for (const int64_t n : kSizes) {
    const Tensor data = contribution(rank_, n, GetParam(), 3);
    comm_->all_reduce(data)->wait();
    EXPECT_TRUE(at::equal(data, expected_sum(size_, n, GetParam(), 3))) << n;
  }
}

TEST_P(Collectives, ShortTypesAccumulateInFp32) {
  // 256, then ones: in bf16 (8 bits) and fp16 (from 2048 on) each single addition would be rounded
  // away.
  if (size_ < 3 || dtype_bytes(GetParam()) != 2)
    GTEST_SKIP() << "needs three ranks and a short type";
  const double large = GetParam() == at::kBFloat16 ? 256 : 2048;
  const Tensor data = at::full({5}, rank_ == 0 ? large : 1.0, GetParam());
  comm_->all_reduce(data)->wait();
  const Tensor expected = at::full({5}, large + (size_ - 1), at::kDouble).to(GetParam());
  EXPECT_TRUE(at::equal(data, expected)) << data[0].item<double>();
  EXPECT_GT(data[0].item<double>(), large);
}

TEST_P(Collectives, BroadcastReachesEveryRankFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const int64_t n : kSizes) {
      const Tensor data = contribution(rank_, n, GetParam(), 4);
      comm_->broadcast(data, root)->wait();
      EXPECT_TRUE(at::equal(data, contribution(root, n, GetParam(), 4)));
    }
  }
}

TEST(RankCollectives, GatherAndBroadcastTakeAnyType) {
  const auto comm = cpu_ranks();
  const Tensor ids = at::arange(7, at::kLong).add_(100 * comm->rank());
  const Tensor whole = at::zeros({7 * comm->size()}, at::kLong);
  comm->all_gather(ids, whole)->wait();
  EXPECT_EQ(whole[7 * (comm->size() - 1) + 3].item<int64_t>(), 100 * (comm->size() - 1) + 3);
  const Tensor flags = at::full({3}, comm->rank() == 0, at::kBool);
  comm->broadcast(flags, 0)->wait();
  EXPECT_TRUE(flags[2].item<bool>());
}

TEST(RankCollectives, ManyCollectivesOnTwoLanesFinishWhateverOrderTheLanesArePostedIn) {
  const auto first = cpu_ranks(0), second = cpu_ranks(1);
  const int rank = first->rank(), size = first->size();
  std::vector<Tensor> gathered, reduced;
  std::vector<PendingPtr> gathers, reduces;
  const auto gather = [&](int i) {
    gathered.push_back(at::full({int64_t{3001} * size}, -1, at::kFloat));
    const Tensor own = gathered.back().narrow(0, rank * 3001, 3001);
    own.copy_(contribution(rank, 3001, at::kFloat, i));
    gathers.push_back(first->all_gather(own, gathered.back()));
  };
  const auto reduce = [&](int i) {
    reduced.push_back(contribution(rank, 50001, at::kFloat, i));
    reduces.push_back(second->all_reduce(reduced.back()));
  };
  for (int i = 0; i < 20; ++i) {
    // Even and odd ranks post the lanes in opposite orders: lanes are independent, so this must not
    // hang.
    if (rank % 2 == 0) gather(i);
    reduce(i);
    if (rank % 2 == 1) gather(i);
    if (i % 5 == 4) reduces[static_cast<size_t>(i)]->wait();
  }
  for (int i = 19; i >= 0; --i) {
    gathers[static_cast<size_t>(i)]->wait();
    reduces[static_cast<size_t>(i)]->wait();
    const auto at_i = static_cast<size_t>(i);
    EXPECT_TRUE(at::equal(reduced[at_i], expected_sum(size, 50001, at::kFloat, i)));
    for (int r = 0; r < size; ++r) {
      EXPECT_TRUE(at::equal(gathered[at_i].narrow(0, r * 3001, 3001),
                            contribution(r, 3001, at::kFloat, i)));
    }
  }
}

TEST(RankCollectives, ACallReturnsBeforeItsPeersHaveCalled) {
  // Rank 0 posts, then enters a barrier on another lane that the others enter first: it hangs if
  // the call waited for its peers.
  const auto data_lane = cpu_ranks(0), barrier_lane = cpu_ranks(1);
  const Tensor data = at::full({100000}, 1.0, at::kFloat);
  PendingPtr pending;
  if (data_lane->rank() == 0) pending = data_lane->all_reduce(data);
  barrier_lane->barrier();
  if (data_lane->rank() != 0) pending = data_lane->all_reduce(data);
  pending->wait();
  pending->wait();  // a second wait is allowed
  EXPECT_EQ(data[99999].item<float>(), data_lane->size());
}

TEST(RankCollectives, ACommunicatorFinishesItsWorkBeforeItEnds) {
  for (int i = 0; i < 10; ++i) {
    const Tensor data = at::full({30000}, 1.0, at::kFloat);
    PendingPtr pending;
    {
      const auto comm = cpu_ranks(i);
      pending = comm->all_reduce(data);
    }
    pending->wait();
    EXPECT_EQ(data[0].item<float>(), cpu_ranks(i)->size());
  }
}

TEST(RankCollectives, RanksThatDisagreeOnTheSizeAllThrow) {
  const auto comm = cpu_ranks();
  if (comm->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const Tensor data = at::zeros({comm->rank() == 0 ? 10 : 11}, at::kFloat);
  const PendingPtr pending = comm->all_reduce(data);
  try {
    pending->wait();
    ADD_FAILURE() << "no exception";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("all_reduce of 10 fp32"), std::string::npos)
        << error.what();
  }
}

TEST(RankCollectives, RanksThatMakeDifferentCallsAllThrow) {
  const auto comm = cpu_ranks();
  if (comm->size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const Tensor data = at::zeros({10}, at::kFloat);
  const PendingPtr pending = comm->rank() == 0 ? comm->all_reduce(data) : comm->broadcast(data, 0);
  EXPECT_THROW(pending->wait(), std::logic_error);
}

TEST(RankCollectives, AShardOfTheWrongSizeIsRefusedAtTheCall) {
  const auto comm = cpu_ranks();
  const Tensor whole = at::zeros({comm->size() * 4 + 1}, at::kFloat),
               shard = at::zeros({4}, at::kFloat);
  EXPECT_THROW(comm->all_gather(shard, whole), std::logic_error);
  EXPECT_THROW(comm->reduce_scatter(whole, shard), std::logic_error);
  EXPECT_THROW(comm->all_to_all(whole.view({1, -1}), at::zeros({comm->size(), 4}, at::kFloat)),
               std::logic_error);
  EXPECT_THROW(comm->all_reduce(at::zeros({4}, at::kLong)), std::logic_error);
  EXPECT_THROW(comm->broadcast(shard, comm->size()), std::logic_error);
}

TEST(RankCollectives, TimedCallsSayWhenTheyBeganAndEnded) {
  const auto comm = cpu_ranks();
  const Tensor data = at::zeros({1000000}, at::kFloat);
  PendingPtr pending = comm->all_reduce(data);
  pending->wait();
  EXPECT_TRUE(pending->began().empty());
  comm->set_timing(true);
  pending = comm->all_reduce(data);
  pending->wait();
  const double ms = pending->ended().ms_since(pending->began());
  EXPECT_GE(ms, 0);
  EXPECT_LT(ms, 60000);
}

}  // namespace
}  // namespace veil
