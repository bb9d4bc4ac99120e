#include "comm/rank_watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace veil {

RankWatch::~RankWatch() {
  for (const Line& line : lines_) close(line.fd);
  close(listening_);
}

void RankWatch::look(int timeout_ms) {
  std::vector<pollfd> polled{{listening_, POLLIN, 0}};
  for (const Line& line : lines_) polled.push_back({line.fd, POLLIN, 0});
  if (poll(polled.data(), polled.size(), timeout_ms) <= 0) return;
  std::vector<Line> open;
  for (size_t i = 0; i < lines_.size(); ++i) {
    Line line = lines_[i];
    if (polled[i + 1].revents == 0 || hear(line)) {
      open.push_back(line);
    } else {
      close(line.fd);
    }
  }
  lines_ = std::move(open);
  if (polled[0].revents) admit();
}

void RankWatch::tell_all(const Frame& frame) {
  for (const Line& line : lines_) send_frame(line.fd, frame);
}

void RankWatch::admit() {
  const int fd = where_ == Where::local ? accept_locally(listening_) : accept_tcp(listening_);
  if (fd >= 0) lines_.push_back({fd, -1, false});
}

bool RankWatch::hear(Line& line) {
  const auto frame = receive_frame(line.fd);
  if (!frame) {
    if (line.rank >= 0 && !line.said_goodbye && !failure_)
      failure_ = RankFailure{line.rank, false, 1, ""};
    return false;
  }
  if (line.rank < 0 && frame->kind != Frame::hello) return false;  // no rank of ours
  switch (frame->kind) {
    case Frame::hello:
      line.rank = frame->number;
      who_joined_.push_back(
          {line.rank, where_ == Where::tcp ? peer_address(line.fd) : "", frame->text});
      if (where_ == Where::local) send_output(line.fd);
      break;
    case Frame::failed:
      if (!failure_) failure_ = RankFailure{line.rank, true, frame->number, frame->text};
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

}  // namespace veil
