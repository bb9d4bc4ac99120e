#include "comm/socket_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace veil {
namespace {

class SocketMessage : public ::testing::Test {
 protected:
  SocketMessage() {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) != 0) throw std::runtime_error("socketpair");
  }
  ~SocketMessage() override {
    for (const int end : ends_) close(end);
  }

  // A frame's head as it is sent, of a share of so many bytes.
  static std::string head(uint64_t bytes) {
    struct {
      int32_t kind = Frame::share, number = 0;
      uint64_t bytes = 0;
    } head;
    head.bytes = bytes;
    return {reinterpret_cast<const char*>(&head), sizeof head};
  }

  int ends_[2];
};

// The most memory that the process has held since the count was set back.
int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  return -1;
}
void set_peak_back() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

TEST_F(SocketMessage, ALongFrameArrivesWhole) {
  std::string text(3'000'001, 'x');
  text[1'234'567] = 'y';
  std::thread sender([&] { EXPECT_TRUE(send_frame(ends_[0], {Frame::share, 7, text})); });
  const auto frame = receive_frame(ends_[1]);
  sender.join();
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->kind, Frame::share);
  EXPECT_EQ(frame->number, 7);
  EXPECT_TRUE(frame->text == text);
}

TEST_F(SocketMessage, AnAnnouncementCostsNoMemory) {
  const std::string sent = head(uint64_t{64} << 20) + "a few bytes";
  ASSERT_EQ(send(ends_[0], sent.data(), sent.size(), 0), std::ssize(sent));
  shutdown(ends_[0], SHUT_WR);
  set_peak_back();
  const int64_t before = peak_kib();
  ASSERT_GT(before, 0);
  EXPECT_FALSE(receive_frame(ends_[1]));
  EXPECT_LT(peak_kib() - before, 8 << 10);
}

TEST_F(SocketMessage, MoreThanAFrameHoldsIsRefused) {
  const std::string sent = head((uint64_t{64} << 20) + 1);
  ASSERT_EQ(send(ends_[0], sent.data(), sent.size(), 0), std::ssize(sent));
  EXPECT_FALSE(receive_frame(ends_[1])) << "without waiting for the rest";
}

}  // namespace
}  // namespace veil
