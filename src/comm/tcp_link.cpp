// Ranks that cannot meet by MPI meet at rank 0, and keep a connection to it: through it they share
// bytes and learn of each other's death.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/agent_store.h"
#include "comm/job_token.h"
#include "comm/liveness.h"
#include "comm/overdue.h"
#include "comm/rank_link.h"
#include "comm/rank_watch.h"
#include "comm/rank_worker.h"

namespace veil {
namespace {

constexpr double kJoinSeconds = 120;
constexpr double kChallengeSeconds = 20;
constexpr double kAskMs = 1000, kSilentMs = 5000;
constexpr auto kGlance = std::chrono::milliseconds(20);
constexpr auto kShareGlance = std::chrono::milliseconds(200);

[[noreturn]] void end_process(const std::string& line, int exit_code) {
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  _exit(exit_code ? exit_code : kExitFailed);
}

// What a rank says when it joins: where it listens, a nonce for rank 0, and its proof.
struct Hello {
  std::string port, nonce, proof;
};
Hello parse_hello(const std::string& text) {
  Hello hello;
  std::istringstream(text) >> hello.port >> hello.nonce >> hello.proof;
  return hello;
}
bool is_hello_of(const std::string& token, const Frame& frame, const std::string& challenge) {
  const Hello hello = parse_hello(frame.text);
  const bool port = !hello.port.empty() && hello.port.size() <= 5 &&
                    hello.port.find_first_not_of("0123456789") == std::string::npos;
  return port && same_secret(hello.proof,
                             join_proof(token, challenge, hello.nonce, frame.number, hello.port));
}

// Where ranks listen for each other: at the address by which this one reaches rank 0. Ranks that
// meet by a loopback address share a machine; a rank that merely has one on the way to rank 0 is on
// rank 0's machine, and others may be elsewhere.
std::string listening_address(const std::string& own, const RankInfo& info) {
  return is_loopback(own) && !is_loopback(info.master_address) ? "" : own;
}

// Where every rank listens for the others' connections, as rank 0 tells it: the world's token, then
// a line per rank with address and port. A rank that rank 0 knows by a loopback address is on rank
// 0's machine, and the others reach it as they reach rank 0.
std::string places_text(int port_of_rank_0, const RankWatch& watch, int world) {
  std::vector<std::string> lines(static_cast<size_t>(world));
  lines[0] = fmt::format("127.0.0.1 {}", port_of_rank_0);
  for (const RankWatch::Joined& joined : watch.who_joined()) {
    if (joined.rank < 1 || joined.rank >= world || !lines[static_cast<size_t>(joined.rank)].empty())
      user_error("rank {} joined a world of {} twice, or is none of it: check RANK and WORLD_SIZE",
                 joined.rank, world);
    lines[static_cast<size_t>(joined.rank)] = joined.address + " " + parse_hello(joined.text).port;
  }
  std::string text = random_hex(16) + "\n";
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
  LazyWorker(const std::string& address, const RankInfo& info)
      : listening_(listen_tcp(address, 0)), limits_{info.collective_timeout_s} {}
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
      worker_ = std::make_unique<RankWorker>(make_tcp_wire(places_), limits_);
    }
    return *worker_;
  }
  void end() { worker_.reset(); }

 private:
  int listening_;
  WaitLimits limits_;
  TcpPlaces places_;
  std::unique_ptr<RankWorker> worker_;
};

// Rank 0: hears every failure first, tells it once, and ends the others.
class TcpHub : public RankLink, public Liveness {
 public:
  TcpHub(const RankInfo& info, int listening)
      : info_(info),
        watch_(listening, RankWatch::Where::tcp,
               [token = info.job_token](const Frame& hello, const std::string& challenge) {
                 return is_hello_of(token, hello, challenge);
               }),
        collectives_(local_address(listening), info) {
    const double deadline = steady_ms() + kJoinSeconds * 1000;
    while (watch_.joined() < info_.world - 1) {
      watch_.look(100);
      end_on_failure();
      if (steady_ms() > deadline) {
        user_error("{} of {} ranks joined at port {} within {} s{}", watch_.joined() + 1,
                   info_.world, info_.master_port, kJoinSeconds,
                   watch_.refused() > 0
                       ? fmt::format(" ({} refused: they had another job token)", watch_.refused())
                       : "");
      }
    }
    // nobody continues before everybody is here, and can be told
    const std::string places = places_text(collectives_.port(), watch_, info_.world);
    watch_.close_door();
    collectives_.meet(places, 0, "127.0.0.1");
    for (const RankWatch::Joined& joined : watch_.who_joined()) {
      const std::string nonce = parse_hello(joined.text).nonce;
      watch_.tell(joined.rank,
                  {Frame::hello, 0, places_proof(info_.job_token, nonce, places) + "\n" + places});
    }
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

  std::vector<int> silent_ranks() override {
    std::lock_guard lock(mutex_);
    return watch_.silent(kSilentMs);
  }

  void fail(const std::string& reason, int exit_code, bool) override {
    std::lock_guard lock(mutex_);
    end_all(failure_line(0, info_.world, reason), exit_code);
  }

 private:
  void watch_until_all_left() {
    double asked_ms = 0;
    while (true) {
      {
        std::lock_guard lock(mutex_);
        if (steady_ms() - asked_ms > kAskMs) {
          asked_ms = steady_ms();
          watch_.tell_all({Frame::ping, 0, ""});
        }
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
class TcpSpoke : public RankLink, public Liveness {
 public:
  TcpSpoke(const RankInfo& info, int port)
      : info_(info),
        fd_(connect_tcp(info.master_address, port, kJoinSeconds)),
        collectives_(listening_address(local_address(fd_), info), info) {
    // Rank 0 answers the challenge at once, and the hello when all are there.
    set_socket_patience(fd_, kChallengeSeconds, kChallengeSeconds);
    const auto challenge = receive_frame(fd_);
    if (!challenge || challenge->kind != Frame::challenge) not_rank_0(port);
    const std::string listens_at = std::to_string(collectives_.port()), nonce = random_hex(16);
    const std::string proof =
        join_proof(info.job_token, challenge->text, nonce, info.rank, listens_at);
    send_frame(fd_, {Frame::hello, info.rank, listens_at + " " + nonce + " " + proof});
    set_socket_patience(fd_, kJoinSeconds + kChallengeSeconds, 0);
    const auto welcome = receive_frame(fd_);
    if (!welcome) end_process("", kExitFailed);  // rank 0 has told why
    if (welcome->kind == Frame::refused)
      user_error(
          "rank 0 at {}:{} does not accept this rank's job token: set VEIL_JOB_TOKEN to the same "
          "secret on every rank",
          info.master_address, port);
    if (welcome->kind != Frame::hello) end_process("", welcome->number);
    const size_t line = welcome->text.find('\n');
    const std::string places = line == std::string::npos ? "" : welcome->text.substr(line + 1);
    if (!same_secret(welcome->text.substr(0, line), places_proof(info.job_token, nonce, places)))
      not_rank_0(port);
    set_socket_patience(fd_, 0, 0);
    collectives_.meet(places, info.rank, peer_address(fd_));
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
    WaitClock clock;
    while (!arrived_.wait_for(lock, kShareGlance, [this] { return !shared_.empty(); })) {
      look_at_wait(clock, {info_.collective_timeout_s}, steady_ms(), info_.rank, [] {
        return OverdueWait{{0}, "what rank 0 shares", current_place()};
      });
    }
    const std::string text = std::move(shared_.front());
    shared_.pop_front();
    VEIL_CHECK(text.size() == bytes, "rank 0 shared {} bytes, rank {} expected {}", text.size(),
               info_.rank, bytes);
    std::memcpy(data, text.data(), bytes);
  }

  RankWorker& worker() override { return collectives_.worker(); }

  std::vector<int> silent_ranks() override {
    return steady_ms() - asked_ms_ > kSilentMs ? std::vector<int>{0} : std::vector<int>{};
  }

  void fail(const std::string& reason, int exit_code, bool aloud) override {
    send_frame(fd_, {Frame::failed, exit_code, reason});
    std::this_thread::sleep_for(std::chrono::seconds(2));  // the listener hears the end meanwhile
    // rank 0 hangs itself
    if (aloud) std::fputs(failure_line(info_.rank, info_.world, reason).c_str(), stderr);
  }

 private:
  [[noreturn]] void not_rank_0(int port) const {
    user_error(
        "what answers at {}:{} is not rank 0 of this job: check MASTER_ADDR, MASTER_PORT and "
        "VEIL_JOB_TOKEN on every rank",
        info_.master_address, port);
  }

  void listen() {
    while (true) {
      auto frame = receive_frame(fd_);
      if (frame && frame->kind == Frame::goodbye) return;
      if (frame && frame->kind == Frame::end) _exit(frame->number ? frame->number : kExitFailed);
      // All the others see rank 0 go; one of them says so.
      if (!frame)
        end_process(info_.rank == 1 ? failure_line(0, info_.world, "died") : "", kExitFailed);
      if (frame->kind == Frame::ping) {
        asked_ms_ = steady_ms();
        send_frame(fd_, {Frame::pong, 0, ""});
        continue;
      }
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
  std::atomic<double> asked_ms_ = steady_ms();  // when rank 0 asked last
  LazyWorker collectives_;
  std::thread listener_;
};

}  // namespace

std::vector<int> silent_ranks() {
  const Membership* member = current_membership();
  auto* const liveness = member ? dynamic_cast<Liveness*>(member->link) : nullptr;
  return liveness ? liveness->silent_ranks() : std::vector<int>{};
}

std::unique_ptr<RankLink> make_tcp_link(const RankInfo& given) {
  RankInfo info = given;
  if (info.master_address.empty()) {
    user_error(
        "{} ranks were launched without a way to meet: set MASTER_ADDR to the host of rank 0 and "
        "MASTER_PORT to a free port of it",
        info.world);
  }
  if (info.agent_store) {
    if (info.rank > 0) {
      const AgentsWord word = word_from_agent(info);
      if (info.job_token.empty()) info.job_token = word.token;
      return std::make_unique<TcpSpoke>(info, word.port);
    }
    const int listening = listen_tcp(info.master_address, 0);
    AgentsWord word{port_of(listening), ""};
    // A token that a person gave is not told to the store, which anyone may ask.
    if (info.job_token.empty()) word.token = info.job_token = random_hex(32);
    tell_agent(info, word);
    return std::make_unique<TcpHub>(info, listening);
  }
  if (info.job_token.empty()) {
    const std::string key = user_key(info.user_key_file);
    if (key.empty())
      user_error(
          "{} ranks meet over TCP and have no secret in common ('{}' is not readable by this user "
          "alone): set VEIL_JOB_TOKEN to the same secret on every rank",
          info.world, info.user_key_file);
    info.job_token = keyed_hash(key, fmt::format("{}:{}", info.master_address, info.master_port));
  }
  if (info.rank > 0) return std::make_unique<TcpSpoke>(info, info.master_port);
  return std::make_unique<TcpHub>(info, info.listening >= 0
                                            ? info.listening
                                            : listen_tcp(info.master_address, info.master_port));
}

}  // namespace veil
