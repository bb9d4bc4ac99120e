// Keys are sent between ranks only if a rank lacks the secret.
#include "run/rank_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "data/test_folder.h"
#include "privacy/secret.h"

namespace veil {
namespace {

class WatchedDone : public Pending {
 public:
  void wait() override {}
};

// One of two ranks, whose peer has what it says: keeps all that would leave this process.
class WatchedLane : public Communicator {
 public:
  WatchedLane(int rank, double peers_flag, std::vector<double> from_rank_0)
      : rank_(rank), peers_flag_(peers_flag), from_rank_0_(std::move(from_rank_0)) {}
  std::string backend() const override { return "watched"; }
  int rank() const override { return rank_; }
  int size() const override { return 2; }
  std::string why_not_capturable() const override { return "never"; }
  void set_timing(bool) override {}
  PendingPtr all_gather(const Tensor&, const Tensor&) override { return nullptr; }
  PendingPtr reduce_scatter(const Tensor&, const Tensor&) override { return nullptr; }
  PendingPtr all_to_all(const Tensor&, const Tensor&) override { return nullptr; }
  PendingPtr all_reduce(const Tensor& data) override {
    data.add_(peers_flag_);
    return std::make_shared<WatchedDone>();
  }
  PendingPtr broadcast(const Tensor& data, int) override {
    double* values = data.data_ptr<double>();
    if (rank_ == 0) {
      sent.assign(values, values + data.numel());
    } else {
      EXPECT_EQ(std::ssize(from_rank_0_), data.numel());
      std::copy(from_rank_0_.begin(), from_rank_0_.end(), values);
    }
    return std::make_shared<WatchedDone>();
  }
  void barrier() override {}

  std::vector<double> sent;

 private:
  int rank_;
  double peers_flag_;
  std::vector<double> from_rank_0_;
};

RunSecret counted_secret(int first) {
  RunSecret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(first + 3 * i);
  return secret;
}

bool equal_keys(const RunKeys& a, const RunKeys& b) {
  const auto equal = [](const ChaChaKey& x, const ChaChaKey& y) {
    return std::equal(std::begin(x.word), std::end(x.word), std::begin(y.word));
  };
  return equal(a.noise, b.noise) && equal(a.sampling, b.sampling) &&
         equal(a.clip_count, b.clip_count) && equal(a.draws, b.draws) &&
         equal(a.canary_coins, b.canary_coins);
}

const RunNonce kNonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// Noise, draws, choices and coins are independent only if no two of them share a key.
TEST(RankKeys, EveryUseHasAKeyOfItsOwnForEverySecretAndNonce) {
  std::set<std::vector<uint32_t>> seen;
  RunNonce other = kNonce;
  other[15] ^= 1;
  for (const RunKeys& keys :
       {run_keys(counted_secret(40), kNonce), run_keys(counted_secret(40), other),
        run_keys(counted_secret(41), kNonce)}) {
    for (const ChaChaKey* key :
         {&keys.noise, &keys.sampling, &keys.clip_count, &keys.draws, &keys.canary_coins})
      seen.emplace(std::begin(key->word), std::end(key->word));
  }
  EXPECT_EQ(seen.size(), 15u);
}

TEST(RankKeys, NeitherKeyNorSecretIsSentWhereEveryRankHasTheSecret) {
  const RunSecret secret = counted_secret(40);
  const RunKeys keys = run_keys(secret, kNonce);
  WatchedLane first(0, 1, {});
  const SharedKeys of_first = share_keys(first, cpu_device(), secret, kNonce, keys);
  EXPECT_FALSE(of_first.sent);
  EXPECT_TRUE(equal_keys(of_first.keys, keys));
  for (const ChaChaKey* key : {&keys.noise, &keys.sampling, &keys.clip_count, &keys.draws}) {
    for (const uint32_t word : key->word)
      EXPECT_EQ(std::count(first.sent.begin(), first.sent.end(), static_cast<double>(word)), 0);
  }
  EXPECT_EQ(std::search(first.sent.begin(), first.sent.end(), secret.begin(), secret.begin() + 4),
            first.sent.end());
  WatchedLane second(1, 1, first.sent);
  const SharedKeys of_second = share_keys(second, cpu_device(), secret, {}, {});
  EXPECT_TRUE(of_second.same_secret);
  EXPECT_TRUE(equal_keys(of_second.keys, keys)) << "the peer derives them by itself";
}

TEST(RankKeys, AnotherSecretIsTold) {
  const RunSecret secret = counted_secret(40);
  WatchedLane first(0, 1, {});
  share_keys(first, cpu_device(), secret, kNonce, run_keys(secret, kNonce));
  WatchedLane second(1, 1, first.sent);
  EXPECT_FALSE(share_keys(second, cpu_device(), counted_secret(41), {}, {}).same_secret);
}

TEST(RankKeys, TheyAreSentWhereARankLacksTheSecret) {
  const RunSecret secret = counted_secret(40);
  const RunKeys keys = run_keys(secret, kNonce);
  WatchedLane first(0, 0, {});
  const SharedKeys of_first = share_keys(first, cpu_device(), secret, kNonce, keys);
  EXPECT_TRUE(of_first.sent);
  WatchedLane second(1, 1, first.sent);
  const SharedKeys of_second = share_keys(second, cpu_device(), {}, {}, {});
  EXPECT_TRUE(of_second.sent);
  EXPECT_TRUE(equal_keys(of_second.keys, keys));
}

class RankSecret : public data::FolderTest {};

TEST_F(RankSecret, IsThatOfTheFileIfThereIsOneHere) {
  EXPECT_EQ(secret_of_this_rank(""), std::nullopt);
  EXPECT_EQ(secret_of_this_rank(path("nowhere")), std::nullopt);
  privacy::write_secret(path("secret"), counted_secret(9));
  EXPECT_EQ(secret_of_this_rank(path("secret")), counted_secret(9));
  std::filesystem::permissions(path("secret"), std::filesystem::perms::all);
  EXPECT_THAT(data::complaint([&] { secret_of_this_rank(path("secret")); }),
              testing::HasSubstr("chmod"));
}

}  // namespace
}  // namespace veil
