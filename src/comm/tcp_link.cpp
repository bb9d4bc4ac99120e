// Ranks that cannot meet by MPI meet at rank 0, and keep a connection to it: through it they share
// bytes and learn of each other's death.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/rank_link.h"
#include "comm/rank_watch.h"

namespace veil {
namespace {

constexpr double kJoinSeconds = 120;
constexpr auto kGlance = std::chrono::milliseconds(20);

[[noreturn]] void end_process(const std::string& line, int exit_code) {
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  _exit(exit_code ? exit_code : kExitFailed);
}

// Rank 0: hears every failure first, tells it once, and ends the others.
class TcpHub : public RankLink {
 public:
  explicit TcpHub(const RankInfo& info)
      : info_(info), watch_(listen_tcp(info.master_port), RankWatch::Where::tcp) {
    const double deadline = steady_ms() + kJoinSeconds * 1000;
    while (watch_.joined() < info_.world - 1) {
      watch_.look(100);
      end_on_failure();
      if (steady_ms() > deadline) {
        user_error("{} of {} ranks joined at port {} within {} s", watch_.joined() + 1, info_.world,
                   info_.master_port, kJoinSeconds);
      }
    }
    // nobody goes on before everybody is here, and can be told
    watch_.tell_all({Frame::hello, 0, ""});
    watcher_ = std::thread([this] { watch_until_all_left(); });
  }

  ~TcpHub() override {
    watcher_.join();  // waits for every rank, as MPI does
    watch_.tell_all({Frame::goodbye, 0, ""});
  }

  void share(void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    watch_.tell_all({Frame::share, 0, std::string(static_cast<const char*>(data), bytes)});
  }

  void fail(const std::string& reason, int exit_code) override {
    std::lock_guard lock(mutex_);
    end_all(failure_line(0, info_.world, reason), exit_code);
  }

 private:
  void watch_until_all_left() {
    while (true) {
      {
        std::lock_guard lock(mutex_);
        watch_.look(0);
        end_on_failure();
        if (watch_.left() == info_.world - 1) return;
      }
      std::this_thread::sleep_for(kGlance);
    }
  }

  void end_on_failure() {
    const auto& failure = watch_.failure();
    if (!failure) return;
    end_all(failure_line(failure->rank, info_.world, failure->told ? failure->reason : "died"),
            failure->exit_code);
  }

  [[noreturn]] void end_all(const std::string& line, int exit_code) {
    watch_.tell_all({Frame::end, exit_code, ""});
    // A socket closed with something unread in it takes back what was sent: hear them out while
    // they end.
    for (int glance = 0; glance < 10 && watch_.open() > 0; ++glance) watch_.look(50);
    end_process(line, exit_code);
  }

  RankInfo info_;
  std::mutex mutex_;  // guards watch_
  RankWatch watch_;
  std::thread watcher_;
};

// Every other rank.
class TcpSpoke : public RankLink {
 public:
  explicit TcpSpoke(const RankInfo& info)
      : info_(info), fd_(connect_tcp(info.master_address, info.master_port, kJoinSeconds)) {
    send_frame(fd_, {Frame::hello, info.rank, ""});
    const auto welcome = receive_frame(fd_);
    if (!welcome) end_process("", kExitFailed);  // rank 0 has told why
    if (welcome->kind != Frame::hello) end_process("", welcome->number);
    listener_ = std::thread([this] { listen(); });
  }

  ~TcpSpoke() override {
    send_frame(fd_, {Frame::goodbye, 0, ""});
    listener_.join();
    close(fd_);
  }

  void share(void* data, size_t bytes) override {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !shared_.empty(); });
    const std::string text = std::move(shared_.front());
    shared_.pop_front();
    VEIL_CHECK(text.size() == bytes, "rank 0 shared {} bytes, rank {} expected {}", text.size(),
               info_.rank, bytes);
    std::memcpy(data, text.data(), bytes);
  }

  void fail(const std::string& reason, int exit_code) override {
    send_frame(fd_, {Frame::failed, exit_code, reason});
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the listener hears the end meanwhile
  }

 private:
  void listen() {
    while (true) {
      auto frame = receive_frame(fd_);
      if (frame && frame->kind == Frame::goodbye) return;
      if (frame && frame->kind == Frame::end) _exit(frame->number ? frame->number : kExitFailed);
      // All the others see rank 0 go; one of them says so.
      if (!frame)
        end_process(info_.rank == 1 ? failure_line(0, info_.world, "died") : "", kExitFailed);
      std::lock_guard lock(mutex_);
      shared_.push_back(std::move(frame->text));
      arrived_.notify_all();
    }
  }

  RankInfo info_;
  int fd_;
  std::mutex mutex_;  // guards shared_
  std::condition_variable arrived_;
  std::deque<std::string> shared_;
  std::thread listener_;
};

}  // namespace

std::unique_ptr<RankLink> make_tcp_link(const RankInfo& info) {
  if (info.master_address.empty()) {
    user_error(
        "{} ranks were launched without a way to meet: set MASTER_ADDR and MASTER_PORT, or use "
        "srun --mpi=pmix",
        info.world);
  }
  if (info.rank == 0) return std::make_unique<TcpHub>(info);
  return std::make_unique<TcpSpoke>(info);
}

}  // namespace veil
