#include "comm/socket_message.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace veil {
namespace {

struct Head {
  int32_t kind, number;
  uint64_t bytes;
};
constexpr uint64_t kMostBytes = 64 << 20, kFirstPiece = 64 << 10;

bool send_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

[[noreturn]] void socket_error(const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// The address of an abstract name, and its length.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  VEIL_CHECK(name.size() + 1 < sizeof address.sun_path, "the socket's name {} is too long", name);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// Messages go out at once, and the kernel asks now and then whether the other machine is alive.
void tune_tcp(int fd) {
  const auto set = [fd](int level, int name, int value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace

bool send_frame(int fd, const Frame& frame) {
  // One send, so that frames of two threads do not mix.
  const Head head{frame.kind, frame.number, frame.text.size()};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += frame.text;
  return send_all(fd, bytes.data(), bytes.size());
}

std::optional<Frame> receive_frame(int fd) {
  Head head{};
  if (!receive_all(fd, &head, sizeof head) || head.bytes > kMostBytes) return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(head.kind), head.number, ""};
  // Memory follows what has come, not what was announced.
  while (frame.text.size() < head.bytes) {
    const size_t had = frame.text.size();
    const size_t piece = std::min(head.bytes - had, std::max<uint64_t>(had, kFirstPiece));
    frame.text.resize(had + piece);
    if (!receive_all(fd, frame.text.data() + had, piece)) return std::nullopt;
  }
  return frame;
}

bool FrameReader::take(int fd, size_t most_bytes) {
  char piece[16384];
  while (true) {
    const ssize_t n = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) return false;
    bytes_.append(piece, static_cast<size_t>(n));
    Head head{};
    if (bytes_.size() < sizeof head) continue;
    std::memcpy(&head, bytes_.data(), sizeof head);
    if (head.bytes > most_bytes) return false;
    if (bytes_.size() >= sizeof head + head.bytes) return true;  // the rest later
  }
}

std::optional<Frame> FrameReader::next() {
  Head head{};
  if (bytes_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes_.data(), sizeof head);
  if (bytes_.size() - sizeof head < head.bytes) return std::nullopt;
  Frame frame{static_cast<Frame::Kind>(head.kind), head.number,
              bytes_.substr(sizeof head, head.bytes)};
  bytes_.erase(0, sizeof head + head.bytes);
  return frame;
}

void set_socket_patience(int fd, double receive_s, double send_s) {
  const auto set = [fd](int name, double seconds) {
    const auto whole = static_cast<time_t>(seconds);
    const timeval patience{whole,
                           static_cast<suseconds_t>((seconds - static_cast<double>(whole)) * 1e6)};
    setsockopt(fd, SOL_SOCKET, name, &patience, sizeof patience);
  };
  set(SO_RCVTIMEO, receive_s);
  set(SO_SNDTIMEO, send_s);
}

int listen_locally(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) socket_error("socket");
  const auto [address, length] = abstract_address(name);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 || listen(fd, 1024) != 0)
    socket_error("bind " + name);
  return fd;
}

int accept_locally(int listening) {
  const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return -1;
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid())
    return fd;
  close(fd);
  return -1;
}

pid_t peer_process(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.pid : 0;
}

int connect_locally(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) socket_error("socket");
  const auto [address, length] = abstract_address(name);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0)
    socket_error("connect " + name);
  return fd;
}

void send_output(int fd) {
  const std::array<int, 2> handed{STDOUT_FILENO, STDERR_FILENO};
  char byte = 'o';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof handed)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof handed);
  std::memcpy(CMSG_DATA(head), handed.data(), sizeof handed);
  (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
}

void receive_output(int fd) {
  std::array<int, 2> received{};
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof received)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(fd, &message, 0) <= 0) socket_error("the launcher's output");
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  VEIL_CHECK(head && head->cmsg_len == CMSG_LEN(sizeof received), "the launcher sent no output");
  std::memcpy(received.data(), CMSG_DATA(head), sizeof received);
  std::fflush(stdout);
  std::fflush(stderr);
  dup2(received[0], STDOUT_FILENO);
  dup2(received[1], STDERR_FILENO);
  for (const int extra : received) close(extra);
}

namespace {

// A socket that listens there; -1 and errno if it cannot.
int listen_at(const sockaddr* address, socklen_t length) {
  const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd, address, length) == 0 && listen(fd, 1024) == 0) return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

int listen_everywhere(int port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  if (const int fd = listen_at(reinterpret_cast<const sockaddr*>(&any6), sizeof any6); fd >= 0)
    return fd;
  // A machine without IPv6.
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_addr.s_addr = htonl(INADDR_ANY);
  any4.sin_port = htons(static_cast<uint16_t>(port));
  return listen_at(reinterpret_cast<const sockaddr*>(&any4), sizeof any4);
}

std::string numeric_address(const sockaddr_storage& address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof text, nullptr,
                  0, NI_NUMERICHOST) != 0)
    return "";
  return text;
}

}  // namespace

int listen_tcp(const std::string& address, int port) {
  int fd = -1;
  bool elsewhere = true;  // none of the addresses is this machine's
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (!address.empty() &&
      getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) == 0) {
    for (const addrinfo* at = found; at && fd < 0; at = at->ai_next) {
      sockaddr_storage resolved{};
      std::memcpy(&resolved, at->ai_addr, at->ai_addrlen);
      // A machine often knows its own name by a loopback address, which the others cannot reach.
      if (is_loopback(numeric_address(resolved, at->ai_addrlen)) && !is_loopback(address)) continue;
      fd = listen_at(at->ai_addr, at->ai_addrlen);
      elsewhere = elsewhere && fd < 0 && errno == EADDRNOTAVAIL;
    }
    const int reason = errno;
    freeaddrinfo(found);
    errno = reason;
  }
  if (fd < 0 && elsewhere) fd = listen_everywhere(port);
  if (fd >= 0) return fd;
  user_error("port {} cannot be listened at ({}): set MASTER_PORT to a free one", port,
             std::strerror(errno));
}

int connect_tcp(const std::string& address, int port, double seconds) {
  const double deadline = steady_ms() + seconds * 1000;
  std::string reason = "no address";
  do {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (failed) reason = gai_strerror(failed);
    for (addrinfo* at = failed ? nullptr : found; at; at = at->ai_next) {
      const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      if (connect(fd, at->ai_addr, at->ai_addrlen) == 0) {
        tune_tcp(fd);
        freeaddrinfo(found);
        return fd;
      }
      reason = std::strerror(errno);
      close(fd);
    }
    if (!failed) freeaddrinfo(found);
    usleep(50'000);
  } while (steady_ms() < deadline);
  user_error(
      "no rank answers at {}:{} ({}): check that it runs, MASTER_ADDR, MASTER_PORT and firewalls",
      address, port, reason);
}

int accept_tcp(int listening) {
  const int fd = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0) tune_tcp(fd);
  return fd;
}

int port_of(int listening) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(listening, reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    socket_error("getsockname");
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

std::string peer_address(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  return numeric_address(peer, length);
}

std::string local_address(int fd) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0) return "";
  const std::string text = numeric_address(own, length);
  return text == "::" || text == "0.0.0.0" ? "" : text;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.") ||
         address.starts_with("::ffff:127.");
}

}  // namespace veil
