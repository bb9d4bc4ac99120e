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
#include <random>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/agent_store.h"
#include "comm/rank_link.h"
#include "comm/rank_watch.h"
#include "comm/rank_worker.h"

namespace veil {
namespace {

constexpr double kJoinSeconds = 120;
constexpr auto kGlance = std::chrono::milliseconds(20);

[[noreturn]] void end_process(const std::string& line, int exit_code) {
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  _exit(exit_code ? exit_code : kExitFailed);
}

// Where every rank listens for the others' connections, as rank 0 tells it: the world's token, then
// a line per rank with address and port. A rank that rank 0 knows by a loopback address is on rank
// 0's machine, and the others reach it as they reach rank 0.
std::string places_text(int port_of_rank_0, const RankWatch& watch, int world) {
  std::random_device random;
  std::vector<std::string> lines(static_cast<size_t>(world));
  lines[0] = fmt::format("127.0.0.1 {}", port_of_rank_0);
  for (const RankWatch::Joined& joined : watch.who_joined()) {
    if (joined.rank < 1 || joined.rank >= world || !lines[static_cast<size_t>(joined.rank)].empty())
      user_error("rank {} joined a world of {} twice, or is none of it: check RANK and WORLD_SIZE",
                 joined.rank, world);
    lines[static_cast<size_t>(joined.rank)] = joined.address + " " + joined.text;
  }
  std::string text = fmt::format("{:08x}{:08x}{:08x}\n", random(), random(), random());
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TcpPlaces places_from(const std::string& text, int rank, int listening,
                      const std::string& address_of_rank_0) {
  TcpPlaces places;
  places.rank = rank;
  places.listening = listening;
  std::istringstream words(text);
  words >> places.token;
  for (TcpPlaces::Place place; words >> place.address >> place.port;) {
    if (is_loopback(place.address)) place.address = address_of_rank_0;
    places.ranks.push_back(place);
  }
  return places;
}

// What carries collectives: made when it is first requested, for ranks with a GPU each need none.
class LazyWorker {
 public:
  LazyWorker() : listening_(listen_tcp(0)) {}
  ~LazyWorker() {
    if (listening_ >= 0) close(listening_);
  }
  LazyWorker(const LazyWorker&) = delete;
  LazyWorker& operator=(const LazyWorker&) = delete;

  int port() const { return port_of(listening_); }
  void meet(const std::string& text, int rank, const std::string& address_of_rank_0) {
    places_ = places_from(text, rank, listening_, address_of_rank_0);
  }
  RankWorker& worker() {
    if (!worker_) {
      listening_ = -1;  // the wire's from now on
      worker_ = std::make_unique<RankWorker>(make_tcp_wire(places_));
    }
    return *worker_;
  }
  void end() { worker_.reset(); }

 private:
  int listening_;
  TcpPlaces places_;
  std::unique_ptr<RankWorker> worker_;
};

// Rank 0: hears every failure first, tells it once, and ends the others.
class TcpHub : public RankLink {
 public:
  TcpHub(const RankInfo& info, int listening)
      : info_(info), watch_(listening, RankWatch::Where::tcp) {
    const double deadline = steady_ms() + kJoinSeconds * 1000;
    while (watch_.joined() < info_.world - 1) {
      watch_.look(100);
      end_on_failure();
      if (steady_ms() > deadline) {
        user_error("{} of {} ranks joined at port {} within {} s", watch_.joined() + 1, info_.world,
                   info_.master_port, kJoinSeconds);
      }
    }
    // nobody continues before everybody is here, and can be told
    const std::string places = places_text(collectives_.port(), watch_, info_.world);
    collectives_.meet(places, 0, "127.0.0.1");
    watch_.tell_all({Frame::hello, 0, places});
    watcher_ = std::thread([this] { watch_until_all_left(); });
  }

  ~TcpHub() override {
    collectives_.end();
    watcher_.join();  // waits for every rank, as MPI does
    watch_.tell_all({Frame::goodbye, 0, ""});
  }

  void share(void* data, size_t bytes) override {
    std::lock_guard lock(mutex_);
    watch_.tell_all({Frame::share, 0, std::string(static_cast<const char*>(data), bytes)});
  }

  RankWorker& worker() override { return collectives_.worker(); }

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
  LazyWorker collectives_;
  std::thread watcher_;
};

// Every other rank.
class TcpSpoke : public RankLink {
 public:
  TcpSpoke(const RankInfo& info, int port)
      : info_(info), fd_(connect_tcp(info.master_address, port, kJoinSeconds)) {
    send_frame(fd_, {Frame::hello, info.rank, std::to_string(collectives_.port())});
    const auto welcome = receive_frame(fd_);
    if (!welcome) end_process("", kExitFailed);  // rank 0 has told why
    if (welcome->kind != Frame::hello) end_process("", welcome->number);
    collectives_.meet(welcome->text, info.rank, peer_address(fd_));
    listener_ = std::thread([this] { listen(); });
  }

  ~TcpSpoke() override {
    collectives_.end();
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

  RankWorker& worker() override { return collectives_.worker(); }

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
  LazyWorker collectives_;
  std::thread listener_;
};

}  // namespace

std::unique_ptr<RankLink> make_tcp_link(const RankInfo& info) {
  if (info.master_address.empty()) {
    user_error(
        "{} ranks were launched without a way to meet: set MASTER_ADDR to the host of rank 0 and "
        "MASTER_PORT to a free port of it",
        info.world);
  }
  if (info.rank > 0)
    return std::make_unique<TcpSpoke>(info,
                                      info.agent_store ? port_from_agent(info) : info.master_port);
  if (info.listening >= 0) return std::make_unique<TcpHub>(info, info.listening);
  const int listening = listen_tcp(info.agent_store ? 0 : info.master_port);
  if (info.agent_store) tell_agent(info, port_of(listening));
  return std::make_unique<TcpHub>(info, listening);
}

}  // namespace veil
