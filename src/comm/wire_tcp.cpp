// A TCP connection per channel and pair of ranks. Nothing on it says where a message ends: both
// sides name the same bytes in the same order. What nobody receives yet stays in the kernel, whose
// full buffers hold the sender back.
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_token.h"
#include "comm/socket_message.h"
#include "comm/wire.h"

namespace veil {
namespace {

constexpr double kOpenSeconds = 120;
constexpr double kGreetingMs = 10'000;  // a connection that says less within it is no rank's
// A rank that loses a connection waits so long for the World to say which rank died, and why.
constexpr double kLostPatienceMs = 5000;

class TcpTransfers;

struct TcpMessage {
  char* at = nullptr;
  size_t left = 0;
  TcpTransfers* batch = nullptr;
};

struct TcpPeer {
  int fd = -1;
  std::deque<TcpMessage> sends, receives;
  double lost_ms = 0;  // when the connection broke
};

class TcpChannel : public Channel {
 public:
  explicit TcpChannel(int size) : peers(static_cast<size_t>(size)) {}
  ~TcpChannel() override {
    for (const TcpPeer& peer : peers) {
      if (peer.fd >= 0) close(peer.fd);
    }
  }
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;

  std::unique_ptr<Transfers> transfers() override;
  // Moves what can be moved without waiting.
  void pump();

  std::vector<TcpPeer> peers;  // by rank; this rank's own is empty
};

class TcpTransfers : public Transfers {
 public:
  explicit TcpTransfers(TcpChannel& channel) : channel_(channel) {}
  ~TcpTransfers() override {
    if (pending == 0) return;
    for (TcpPeer& peer : channel_.peers) {
      for (auto* queue : {&peer.sends, &peer.receives})
        std::erase_if(*queue, [this](const TcpMessage& m) { return m.batch == this; });
    }
  }
  TcpTransfers(const TcpTransfers&) = delete;
  TcpTransfers& operator=(const TcpTransfers&) = delete;

  void send(const void* data, size_t bytes, int to) override {
    // The kernel reads it only.
    add(channel_.peers.at(static_cast<size_t>(to)).sends,
        const_cast<char*>(static_cast<const char*>(data)), bytes);
  }
  void receive(void* data, size_t bytes, int from) override {
    add(channel_.peers.at(static_cast<size_t>(from)).receives, static_cast<char*>(data), bytes);
  }

  bool completed() override {
    if (pending > 0) channel_.pump();
    if (pending == 0) return true;
    for (size_t rank = 0; rank < channel_.peers.size(); ++rank) {
      const double lost_ms = channel_.peers[rank].lost_ms;
      if (lost_ms > 0 && steady_ms() - lost_ms > kLostPatienceMs)
        throw std::runtime_error(fmt::format("the connection to rank {} was lost", rank));
    }
    return false;
  }

  std::vector<int> waiting_for() override {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < channel_.peers.size(); ++rank) {
      const auto mine = [this](const TcpMessage& m) { return m.batch == this; };
      const TcpPeer& peer = channel_.peers[rank];
      if (std::any_of(peer.sends.begin(), peer.sends.end(), mine) ||
          std::any_of(peer.receives.begin(), peer.receives.end(), mine))
        ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  int64_t pending = 0;  // messages

 private:
  void add(std::deque<TcpMessage>& queue, char* data, size_t bytes) {
    if (bytes == 0) return;
    queue.push_back({data, bytes, this});
    ++pending;
  }

  TcpChannel& channel_;
};

std::unique_ptr<Transfers> TcpChannel::transfers() {
  return std::make_unique<TcpTransfers>(*this);
}

// Passes the queue's first bytes to `move` until it would wait. False if the connection broke.
template <typename Move>
bool drain_messages(std::deque<TcpMessage>& queue, Move move) {
  while (!queue.empty()) {
    TcpMessage& message = queue.front();
    const ssize_t n = move(message.at, message.left);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    message.at += n;
    message.left -= static_cast<size_t>(n);
    if (message.left > 0) continue;
    --message.batch->pending;
    queue.pop_front();
  }
  return true;
}

void TcpChannel::pump() {
  for (TcpPeer& peer : peers) {
    if (peer.fd < 0 || peer.lost_ms > 0) continue;
    const bool sent = drain_messages(peer.sends, [&peer](char* at, size_t bytes) {
      return ::send(peer.fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
    const bool received = drain_messages(peer.receives, [&peer](char* at, size_t bytes) {
      return ::recv(peer.fd, at, bytes, MSG_DONTWAIT);
    });
    if (!sent || !received) peer.lost_ms = steady_ms();
  }
}

// The first bytes of a connection: whose it is.
struct Greeting {
  char token[32] = {};
  int32_t channel = 0, rank = 0;
};

class TcpWire : public Wire {
 public:
  explicit TcpWire(TcpPlaces places) : places_(std::move(places)) {
    VEIL_CHECK(places_.token.size() <= sizeof Greeting{}.token, "a token of {} bytes",
               places_.token.size());
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) throw std::runtime_error(fmt::format("eventfd: {}", std::strerror(errno)));
  }
  ~TcpWire() override {
    for (const auto& [whose, fd] : waiting_) close(fd);
    for (const Newcomer& one : newcomers_) close(one.fd);
    close(places_.listening);
    close(wake_);
  }
  TcpWire(const TcpWire&) = delete;
  TcpWire& operator=(const TcpWire&) = delete;

  std::string name() const override { return "tcp"; }
  void begin() override {}
  int rank() const override { return places_.rank; }
  int size() const override { return static_cast<int>(places_.ranks.size()); }

  // A rank connects to those below it. Their listening sockets take a connection whatever the
  // process is doing, so that only the waiting for those above takes turns.
  RankTask open(std::unique_ptr<Channel>& channel) override {
    const int number = opened_++;
    auto made = std::make_unique<TcpChannel>(size());
    for (int p = 0; p < rank(); ++p) made->peers[static_cast<size_t>(p)].fd = dial(p, number);
    const double deadline = steady_ms() + kOpenSeconds * 1000;
    for (int p = rank() + 1; p < size(); ++p) {
      const std::pair<int, int> whose{number, p};
      for (admit(); waiting_.count(whose) == 0; admit()) {
        if (steady_ms() > deadline)
          throw std::runtime_error(
              fmt::format("rank {} has not connected within {:g} s", p, kOpenSeconds));
        co_await kTurn;
      }
      made->peers[static_cast<size_t>(p)].fd = waiting_.extract(whose).mapped();
    }
    channels_.push_back(made.get());
    channel = std::make_unique<OwnedChannel>(*this, std::move(made));
  }

  void rest(int rounds) override {
    if (rounds < 8) {
      sched_yield();
      return;
    }
    std::vector<pollfd> polled{{wake_, POLLIN, 0}, {places_.listening, POLLIN, 0}};
    for (const TcpChannel* channel : channels_) {
      for (const TcpPeer& peer : channel->peers) {
        const int events =
            (peer.sends.empty() ? 0 : POLLOUT) | (peer.receives.empty() ? 0 : POLLIN);
        if (events && peer.lost_ms == 0) polled.push_back({peer.fd, static_cast<short>(events), 0});
      }
    }
    poll(polled.data(), polled.size(), /*timeout_ms=*/50);
    uint64_t count = 0;
    (void)!read(wake_, &count, sizeof count);
  }

  void wake() override {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
  }

 private:
  // A channel that the wire forgets when it ends.
  class OwnedChannel : public Channel {
   public:
    OwnedChannel(TcpWire& wire, std::unique_ptr<TcpChannel> channel)
        : wire_(wire), channel_(std::move(channel)) {}
    ~OwnedChannel() override { std::erase(wire_.channels_, channel_.get()); }
    OwnedChannel(const OwnedChannel&) = delete;
    OwnedChannel& operator=(const OwnedChannel&) = delete;
    std::unique_ptr<Transfers> transfers() override { return channel_->transfers(); }

   private:
    TcpWire& wire_;
    std::unique_ptr<TcpChannel> channel_;
  };

  Greeting greeting(int channel) const {
    Greeting mine;
    std::memcpy(mine.token, places_.token.data(), places_.token.size());
    mine.channel = channel;
    mine.rank = rank();
    return mine;
  }

  int dial(int to, int channel) const {
    const TcpPlaces::Place& place = places_.ranks[static_cast<size_t>(to)];
    const int fd = connect_tcp(place.address, place.port, kOpenSeconds);
    const Greeting mine = greeting(channel);
    if (::send(fd, &mine, sizeof mine, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof mine))
      return fd;
    close(fd);
    throw std::runtime_error(fmt::format("the connection to rank {} was lost", to));
  }

  // Accepts who has come, and keeps the connections that are not requested yet. Waits for nobody.
  void admit() {
    pollfd coming{places_.listening, POLLIN, 0};
    while (poll(&coming, 1, 0) > 0) {
      const int fd = accept_tcp(places_.listening);
      if (fd < 0) break;
      newcomers_.push_back({fd, steady_ms() + kGreetingMs, {}, 0});
    }
    std::erase_if(newcomers_, [this](Newcomer& one) { return settled(one); });
  }

  // A connection whose greeting is not whole yet.
  struct Newcomer {
    int fd = -1;
    double until_ms = 0;
    Greeting greeting;
    size_t bytes = 0;  // of the greeting that have come
  };

  // Whether it is known to be a rank's, or closed.
  bool settled(Newcomer& one) {
    const ssize_t n = recv(one.fd, reinterpret_cast<char*>(&one.greeting) + one.bytes,
                           sizeof one.greeting - one.bytes, MSG_DONTWAIT);
    const bool nothing_yet = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (n > 0) one.bytes += static_cast<size_t>(n);
    if (one.bytes < sizeof one.greeting && (n > 0 || nothing_yet) && steady_ms() < one.until_ms)
      return false;
    const Greeting mine = greeting(0);
    const Greeting& theirs = one.greeting;
    const std::pair<int, int> whose{theirs.channel, theirs.rank};
    if (one.bytes == sizeof theirs &&
        same_secret({theirs.token, sizeof theirs.token}, {mine.token, sizeof mine.token}) &&
        waiting_.emplace(whose, one.fd).second)
      return true;
    close(one.fd);
    return true;
  }

  TcpPlaces places_;
  int wake_ = -1;
  int opened_ = 0;
  std::map<std::pair<int, int>, int> waiting_;  // accepted connections, by channel and rank
  std::vector<Newcomer> newcomers_;
  std::vector<TcpChannel*> channels_;
};

}  // namespace

std::unique_ptr<Wire> make_tcp_wire(TcpPlaces places) {
  return std::make_unique<TcpWire>(std::move(places));
}

}  // namespace veil
