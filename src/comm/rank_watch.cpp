#include "comm/rank_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "comm/job_token.h"

namespace veil {
namespace {

constexpr double kHelloMs = 10'000;
// Of a connection that is no rank's yet; of a rank's own.
constexpr size_t kMostHelloBytes = 1024, kMostRankBytes = size_t{64} << 20;
constexpr size_t kMostLines = 16384;
constexpr double kSendSeconds = 20;  // a rank that takes nothing for so long is left out

}  // namespace

RankWatch::RankWatch(int listening, Where where, Accepts accepts)
    : listening_(listening), where_(where), accepts_(std::move(accepts)) {}

RankWatch::~RankWatch() {
  for (const Line& line : lines_) close(line.fd);
  close_door();
}

void RankWatch::close_door() {
  if (listening_ >= 0) close(listening_);
  listening_ = -1;
}

void RankWatch::look(int timeout_ms) {
  std::vector<pollfd> polled{{listening_, POLLIN, 0}};  // poll leaves a negative one out
  for (const Line& line : lines_) polled.push_back({line.fd, POLLIN, 0});
  const int ready = poll(polled.data(), polled.size(), timeout_ms);
  const double now_ms = steady_ms();
  std::vector<Line> open;
  for (size_t i = 0; i < lines_.size(); ++i) {
    Line& line = lines_[i];
    const bool stays = ready <= 0 || polled[i + 1].revents == 0 || hear(line);
    if (stays && (line.rank >= 0 || now_ms < line.until_ms)) {
      open.push_back(std::move(line));
    } else {
      close(line.fd);
    }
  }
  lines_ = std::move(open);
  if (ready > 0 && polled[0].revents) admit();
}

void RankWatch::tell_all(const Frame& frame) {
  for (const Line& line : lines_) {
    if (line.rank >= 0) send_frame(line.fd, frame);
  }
}

void RankWatch::tell(int rank, const Frame& frame) {
  for (const Line& line : lines_) {
    if (line.rank == rank) send_frame(line.fd, frame);
  }
}

void RankWatch::signal_ranks(int number) const {
  for (const Line& line : lines_) {
    if (line.process > 0) kill(line.process, number);
  }
}

std::vector<int> RankWatch::silent(double ms) const {
  const double since_ms = steady_ms() - ms;
  std::vector<int> ranks;
  for (const Line& line : lines_) {
    if (line.rank >= 0 && !line.said_goodbye && line.heard_ms < since_ms)
      ranks.push_back(line.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void RankWatch::admit() {
  const int fd = where_ == Where::local ? accept_locally(listening_) : accept_tcp(listening_);
  if (fd < 0) return;
  if (lines_.size() >= kMostLines) {
    close(fd);
    return;
  }
  Line line;
  line.fd = fd;
  line.until_ms = steady_ms() + kHelloMs;
  set_socket_patience(fd, /*receive_s=*/0, kSendSeconds);
  if (where_ == Where::tcp) {
    line.challenge = random_hex(16);
    send_frame(fd, {Frame::challenge, 0, line.challenge});
  }
  lines_.push_back(std::move(line));
}

bool RankWatch::hear(Line& line) {
  line.heard_ms = steady_ms();
  const bool open = line.reader.take(line.fd, line.rank < 0 ? kMostHelloBytes : kMostRankBytes);
  while (const auto frame = line.reader.next()) {
    if (!understand(line, *frame)) return false;
  }
  if (!open && line.rank >= 0 && !line.said_goodbye && !failure_)
    failure_ = RankFailure{line.rank, false, 1, ""};
  return open;
}

bool RankWatch::understand(Line& line, const Frame& frame) {
  if (line.rank < 0) return frame.kind == Frame::hello && welcome_rank(line, frame);
  switch (frame.kind) {
    case Frame::failed:
      if (!failure_) failure_ = RankFailure{line.rank, true, frame.number, frame.text};
      break;
    case Frame::goodbye:
      line.said_goodbye = true;
      ++left_;
      if (where_ == Where::local) send_frame(line.fd, {Frame::goodbye, 0, ""});
      break;
    default:
      break;
  }
  return true;
}

bool RankWatch::welcome_rank(Line& line, const Frame& frame) {
  if (frame.number < 0 || (accepts_ && !accepts_(frame, line.challenge))) {
    ++refused_;
    send_frame(line.fd, {Frame::refused, 0, ""});
    return false;
  }
  line.rank = frame.number;
  who_joined_.push_back({line.rank, where_ == Where::tcp ? peer_address(line.fd) : "", frame.text});
  if (where_ == Where::tcp) return true;
  send_output(line.fd);
  line.process = peer_process(line.fd);
  return true;
}

}  // namespace veil
