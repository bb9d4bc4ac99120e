// Who comes to the place where ranks meet and is none of them.
#include "comm/rank_watch.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "comm/job_token.h"

namespace veil {
namespace {

const std::string kToken = "the secret of this job";

class RankWatchTest : public ::testing::Test {
 protected:
  RankWatchTest() : listening_(listen_tcp("127.0.0.1", 0)), port_(port_of(listening_)) {
    watch_ = std::make_unique<RankWatch>(
        listening_, RankWatch::Where::tcp, [](const Frame& hello, const std::string& challenge) {
          return hello.text == join_proof(kToken, challenge, "nonce", hello.number, "1");
        });
  }

  int connect() const { return connect_tcp("127.0.0.1", port_, 5); }
  void look_a_while() {
    for (int i = 0; i < 20; ++i) watch_->look(5);
  }
  // Says hello with this secret; the connection.
  int join(int rank, const std::string& token) {
    const int fd = connect();
    look_a_while();
    const auto challenge = receive_frame(fd);
    EXPECT_TRUE(challenge && challenge->kind == Frame::challenge);
    send_frame(fd, {Frame::hello, rank, join_proof(token, challenge->text, "nonce", rank, "1")});
    look_a_while();
    return fd;
  }

  int listening_, port_;
  std::unique_ptr<RankWatch> watch_;
};

TEST_F(RankWatchTest, ARogueClientWithoutTheTokenIsNoRank) {
  const int rogue = join(1, "a guess");
  EXPECT_EQ(watch_->joined(), 0);
  EXPECT_EQ(watch_->refused(), 1);
  const auto answer = receive_frame(rogue);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->kind, Frame::refused);
  EXPECT_FALSE(receive_frame(rogue)) << "it was not closed";
  const int rank = join(1, kToken);
  EXPECT_EQ(watch_->joined(), 1);
  EXPECT_FALSE(watch_->failure());
  close(rogue);
  close(rank);
}

TEST_F(RankWatchTest, AnAnswerToAnotherConnectionsChallengeIsRefused) {
  const int first = connect(), second = connect();
  look_a_while();
  const auto challenge = receive_frame(first), other = receive_frame(second);
  ASSERT_TRUE(challenge && other);
  EXPECT_NE(challenge->text, other->text);
  // What a listener on the network has heard a rank say.
  send_frame(second, {Frame::hello, 1, join_proof(kToken, challenge->text, "nonce", 1, "1")});
  look_a_while();
  EXPECT_EQ(watch_->joined(), 0);
  close(first);
  close(second);
}

TEST_F(RankWatchTest, AStrayByteHoldsNobodyUp) {
  const int stray = connect();
  ASSERT_EQ(send(stray, "x", 1, MSG_NOSIGNAL), 1);
  auto joining = std::async(std::launch::async, [this] { return join(1, kToken); });
  // A look that waits for the rest of a message does not come back before the stranger is gone.
  if (joining.wait_for(std::chrono::seconds(30)) == std::future_status::timeout) {
    ADD_FAILURE() << "the stray byte holds up everybody";
    shutdown(stray, SHUT_RDWR);
  }
  const int rank = joining.get();
  EXPECT_EQ(watch_->joined(), 1);
  EXPECT_FALSE(watch_->failure()) << "a stranger's end is not a rank's";
  close(stray);
  close(rank);
}

TEST_F(RankWatchTest, AStrangerThatAnnouncesALongMessageIsClosed) {
  const int stranger = connect();
  const struct {
    int32_t kind = Frame::hello, number = 1;
    uint64_t bytes = 1 << 20;
  } head;
  ASSERT_EQ(send(stranger, &head, sizeof head, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof head));
  look_a_while();
  EXPECT_EQ(watch_->open(), 0);
  close(stranger);
}

TEST_F(RankWatchTest, AFrameInPiecesIsHeardWhenItIsWhole) {
  const int rank = join(3, kToken);
  ASSERT_EQ(watch_->joined(), 1);
  const std::string reason = "no such file";
  const struct {
    int32_t kind = Frame::failed, number = 2;
    uint64_t bytes = 12;
  } head;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += reason;
  for (const char byte : bytes) {
    EXPECT_FALSE(watch_->failure());
    ASSERT_EQ(send(rank, &byte, 1, MSG_NOSIGNAL), 1);
    watch_->look(5);
  }
  look_a_while();
  ASSERT_TRUE(watch_->failure());
  EXPECT_EQ(watch_->failure()->reason, reason);
  EXPECT_EQ(watch_->failure()->rank, 3);
  close(rank);
}

TEST_F(RankWatchTest, BehindAClosedDoorNobodyListens) {
  const int rank = join(1, kToken);
  watch_->close_door();
  EXPECT_ANY_THROW(connect_tcp("127.0.0.1", port_, 0));
  watch_->tell(1, {Frame::hello, 0, "welcome"});
  const auto welcome = receive_frame(rank);
  ASSERT_TRUE(welcome);
  EXPECT_EQ(welcome->text, "welcome");
  close(rank);
}

TEST(ListenTcp, OnlyTheGivenAddressIsListenedAt) {
  const int one = listen_tcp("127.0.0.1", 0);
  EXPECT_EQ(local_address(one), "127.0.0.1");
  EXPECT_ANY_THROW(connect_tcp("127.0.0.2", port_of(one), 0)) << "another address of this machine";
  const int all = listen_tcp("", 0);
  EXPECT_EQ(local_address(all), "");
  close(connect_tcp("127.0.0.2", port_of(all), 5));
  // An address of another machine (RFC 5737: of none) cannot be bound to.
  const int elsewhere = listen_tcp("192.0.2.1", 0);
  EXPECT_EQ(local_address(elsewhere), "");
  for (const int fd : {one, all, elsewhere}) close(fd);
}

TEST(LocalRankWatch, SignalsTheProcessesOfTheRanks) {
  const std::string name = fmt::format("veil-test-{}", getpid());
  RankWatch watch(listen_locally(name), RankWatch::Where::local);
  const pid_t rank = fork();
  if (rank == 0) {
    send_frame(connect_locally(name), {Frame::hello, 0, ""});
    while (true) pause();
  }
  while (watch.joined() == 0) watch.look(100);
  watch.signal_ranks(SIGUSR2);
  int status = 0;
  ASSERT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGUSR2);
}

}  // namespace
}  // namespace veil
