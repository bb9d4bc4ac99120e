// Two ranks' TCP wires in one process. That MPI and TCP give the same bits is shown by the rank
// tests, which run over both, and by tests/launchers.
#include "comm/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <numeric>

#include "comm/rank_worker.h"
#include "comm/socket_message.h"

namespace veil {
namespace {

class TcpWireTest : public ::testing::Test {
 protected:
  TcpWireTest() {
    std::vector<TcpPlaces> places(2);
    for (int rank = 0; rank < 2; ++rank) {
      places[static_cast<size_t>(rank)].rank = rank;
      places[static_cast<size_t>(rank)].listening = listen_tcp("127.0.0.1", 0);
      places[static_cast<size_t>(rank)].token = "of this world";
    }
    ports_ = {port_of(places[0].listening), port_of(places[1].listening)};
    for (TcpPlaces& place : places) {
      for (const int port : ports_) place.ranks.push_back({"127.0.0.1", port});
      ranks_.push_back(std::make_unique<RankWorker>(make_tcp_wire(place)));
    }
  }

  // The same channel, opened by both.
  std::vector<std::unique_ptr<Channel>> open() {
    std::vector<std::unique_ptr<Channel>> channels(2);
    std::vector<std::future<void>> opened;
    for (size_t r = 0; r < 2; ++r)
      opened.push_back(
          ranks_[r]->post(0, [this, r, &channels] { return ranks_[r]->wire().open(channels[r]); }));
    for (auto& done : opened) done.get();
    return channels;
  }

  static RankTask exchange(RankWorker& worker, Channel& channel, const std::vector<int>& out,
                           std::vector<int>& in) {
    const int other = 1 - worker.rank();
    const auto messages = channel.transfers();
    messages->receive(in.data(), in.size() * sizeof(int), other);
    messages->send(out.data(), out.size() * sizeof(int), other);
    while (!worker.completed(*messages)) co_await kTurn;
  }
  static RankTask close_channel(std::unique_ptr<Channel>& channel) {
    channel.reset();
    co_return;
  }

  // Both send `count` numbers at once; whether both have received the other's.
  bool crosses(std::vector<std::unique_ptr<Channel>>& channels, int queue, size_t count) {
    std::vector<std::vector<int>> out(2, std::vector<int>(count)), in = out;
    for (size_t r = 0; r < 2; ++r)
      std::iota(out[r].begin(), out[r].end(), static_cast<int>(r * count));
    std::vector<std::future<void>> done;
    for (size_t r = 0; r < 2; ++r)
      done.push_back(ranks_[r]->post(
          queue, [&, r] { return exchange(*ranks_[r], *channels[r], out[r], in[r]); }));
    for (auto& one : done) one.get();
    return in[0] == out[1] && in[1] == out[0];
  }
  void close_all(std::vector<std::unique_ptr<Channel>>& channels) {
    for (size_t r = 0; r < 2; ++r)
      ranks_[r]->post(0, [&channels, r] { return close_channel(channels[r]); }).get();
  }

  std::vector<int> ports_;
  std::vector<std::unique_ptr<RankWorker>> ranks_;
};

// Far more than a socket holds: whoever only sent before it received would wait for ever.
TEST_F(TcpWireTest, LargeMessagesCrossInBothDirections) {
  auto channels = open();
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{8} << 20, size_t{3}})
    EXPECT_TRUE(crosses(channels, 0, count)) << count;
  close_all(channels);
}

TEST_F(TcpWireTest, AChannelDoesNotWaitForAnother) {
  auto first = open(), second = open();
  // Rank 0 waits on the first channel for what rank 1 has not sent yet.
  std::vector<int> out(100, 7), in(100, 0), back(100, 0);
  auto waiting = ranks_[0]->post(1, [&] { return exchange(*ranks_[0], *first[0], out, in); });
  EXPECT_TRUE(crosses(second, 2, 5000));
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  ranks_[1]->post(1, [&] { return exchange(*ranks_[1], *first[1], out, back); }).get();
  waiting.get();
  EXPECT_EQ(in, out);
  EXPECT_EQ(back, out);
  close_all(second);
  close_all(first);
}

TEST_F(TcpWireTest, AConnectionWithoutTheWorldsTokenIsDropped) {
  const int stranger = connect_tcp("127.0.0.1", ports_[0], 5);
  const std::string greeting(40, '\0');  // channel 0, rank 0, and no token
  ASSERT_EQ(send(stranger, greeting.data(), greeting.size(), MSG_NOSIGNAL), 40);
  auto channels = open();
  EXPECT_TRUE(crosses(channels, 0, 10));
  char byte = 0;
  EXPECT_EQ(recv(stranger, &byte, 1, 0), 0) << "it was not closed";
  close(stranger);
  close_all(channels);
}

TEST_F(TcpWireTest, AStrayByteHoldsNobodyUp) {
  const int stray = connect_tcp("127.0.0.1", ports_[0], 5);
  ASSERT_EQ(send(stray, "x", 1, MSG_NOSIGNAL), 1);
  // Rank 0 has accepted it and waits for the rest of its greeting, which never comes.
  auto channels = open();
  EXPECT_TRUE(crosses(channels, 0, 10));
  close(stray);
  close_all(channels);
}

TEST_F(TcpWireTest, WhoHasNotSentIsKnown) {
  auto channels = open();
  int mine = 1, theirs = 0;
  std::vector<int> before, after;
  auto asked = ranks_[0]->post(0, [&] {
    return [](RankWorker& worker, Channel& channel, int& in, std::vector<int>& waits,
              std::vector<int>& done) -> RankTask {
      const auto messages = channel.transfers();
      messages->receive(&in, sizeof in, 1);
      if (!worker.completed(*messages)) waits = messages->waiting_for();
      while (!worker.completed(*messages)) co_await kTurn;
      done = messages->waiting_for();
    }(*ranks_[0], *channels[0], theirs, before, after);
  });
  EXPECT_EQ(asked.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  ranks_[1]
      ->post(0,
             [&] {
               return [](RankWorker& worker, Channel& channel, int& out) -> RankTask {
                 const auto messages = channel.transfers();
                 messages->send(&out, sizeof out, 0);
                 while (!worker.completed(*messages)) co_await kTurn;
               }(*ranks_[1], *channels[1], mine);
             })
      .get();
  asked.get();
  EXPECT_EQ(before, std::vector<int>{1});
  EXPECT_TRUE(after.empty());
  close_all(channels);
}

}  // namespace
}  // namespace veil
