#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"
#include "comm/rank_link.h"
#include "comm/rank_worker.h"
#include "comm/socket_message.h"
#include "comm/stop_signals.h"

namespace veil {
namespace {

// A rank's line to launch_local_ranks: who died, and why, is told there once.
class LauncherLine {
 public:
  // Connects to the launcher's socket and takes over the launcher's own standard output and error,
  // so that they are what the person sees (a terminal stays a terminal) and not mpirun's pipes.
  // Should the launcher die or ask for it, this process ends.
  LauncherLine(const std::string& socket, int rank);
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;

  void fail(const std::string& reason, int exit_code);
  void goodbye();  // this rank ends as it should

 private:
  int fd_;
  std::atomic<bool> leaving_{false};
  std::thread listener_;
};

LauncherLine::LauncherLine(const std::string& socket, int rank) : fd_(connect_locally(socket)) {
  const HeldSignals until_output_is_here;  // what a signal says is for the launcher's terminal
  send_frame(fd_, {Frame::hello, rank, ""});
  receive_output(fd_);
  listener_ = std::thread([this] {
    const auto frame = receive_frame(fd_);
    if (leaving_ || (frame && frame->kind == Frame::goodbye)) return;
    _exit(frame && frame->number ? frame->number : kExitFailed);
  });
}

LauncherLine::~LauncherLine() {
  leaving_ = true;
  shutdown(fd_, SHUT_RDWR);
  listener_.join();
  close(fd_);
}

void LauncherLine::fail(const std::string& reason, int exit_code) {
  send_frame(fd_, {Frame::failed, exit_code, reason});
}

void LauncherLine::goodbye() {
  leaving_ = true;
  send_frame(fd_, {Frame::goodbye, 0, ""});
}

RankTask share_task(RankWorker& worker, Channel& channel, void* data, size_t bytes) {
  const std::unique_ptr<Transfers> messages = channel.transfers();
  if (worker.rank() > 0) messages->receive(data, bytes, 0);
  for (int p = 1; worker.rank() == 0 && p < worker.size(); ++p) messages->send(data, bytes, p);
  while (!worker.completed(*messages)) co_await kTurn;
}

RankTask close_task(std::unique_ptr<Channel>& channel) {
  channel.reset();
  co_return;
}

class MpiLink : public RankLink {
 public:
  explicit MpiLink(const RankInfo& info) : info_(info) {
    if (!info.launcher_socket.empty())
      launcher_ = std::make_unique<LauncherLine>(info.launcher_socket, info.rank);
    try {
      worker_ =
          std::make_unique<RankWorker>(make_mpi_wire(), WaitLimits{info.collective_timeout_s});
    } catch (const std::exception& error) {
      if (!launcher_) throw;
      launcher_->fail(error.what(), kExitFailed);
      _exit(kExitFailed);
    }
    VEIL_CHECK(worker_->rank() == info.rank && worker_->size() == info.world,
               "the launcher says rank {} of {}, MPI says rank {} of {}", info.rank, info.world,
               worker_->rank(), worker_->size());
    queue_ = worker_->new_queue();
    worker_
        ->post(queue_, [this] { return worker_->wire().open(channel_); },
               {[] { return "the opening of a channel"; }})
        .get();
  }

  ~MpiLink() override {
    worker_->post(queue_, [this] { return close_task(channel_); }).get();
    worker_.reset();  // waits for every rank
    if (launcher_) launcher_->goodbye();
  }

  void share(void* data, size_t bytes) override {
    worker_
        ->post(queue_, [this, data, bytes] { return share_task(*worker_, *channel_, data, bytes); },
               {[] { return "what rank 0 shares"; }, current_place()})
        .get();
  }

  RankWorker& worker() override { return *worker_; }

  void fail(const std::string& reason, int exit_code, bool aloud) override {
    if (launcher_) {
      launcher_->fail(reason, exit_code);  // it prints the first failure it hears of, and no other
    } else if (aloud) {
      std::fputs(failure_line(info_.rank, info_.world, reason).c_str(), stderr);
      std::fflush(stderr);
    }
    worker_->abort(exit_code);
  }

 private:
  RankInfo info_;
  std::unique_ptr<LauncherLine> launcher_;
  std::unique_ptr<RankWorker> worker_;
  std::unique_ptr<Channel> channel_;
  int queue_ = 0;
};

}  // namespace

std::unique_ptr<RankLink> make_mpi_link(const RankInfo& info) {
  return std::make_unique<MpiLink>(info);
}

}  // namespace veil
