#include "data/test_http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <sstream>

namespace veil {

namespace {

// Whether all of it went.
bool send_all(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

TestRequest parse(const std::string& raw) {
  TestRequest request;
  request.raw = raw;
  std::istringstream lines(raw);
  lines >> request.method >> request.path;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.size() > 1) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    // ": " before, "\r" behind
    request.headers[name] = line.substr(colon + 2, line.size() - colon - 3);
  }
  return request;
}

}  // namespace

TestHttpServer::TestHttpServer(std::function<TestAnswer(const TestRequest&)> answer)
    : answer_(std::move(answer)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof place;
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&place), length), 0);
  EXPECT_EQ(listen(listener_, 16), 0);
  EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &length), 0);
  port_ = ntohs(place.sin_port);
  thread_ = std::thread([this] { serve(); });
}

TestHttpServer::~TestHttpServer() {
  ending_ = true;
  shutdown(listener_, SHUT_RDWR);  // accept() returns
  thread_.join();
  close(listener_);
}

std::string TestHttpServer::address() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

std::vector<TestRequest> TestHttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void TestHttpServer::forget_requests() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
}

void TestHttpServer::serve() {
  while (!ending_) {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    converse(connection);
    close(connection);
  }
}

void TestHttpServer::converse(int connection) {
  std::string raw;
  char piece[4096];
  while (raw.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = recv(connection, piece, sizeof piece, 0);
    if (got <= 0) return;
    raw.append(piece, static_cast<size_t>(got));
  }
  const TestRequest request = parse(raw);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const TestAnswer answer = answer_(request);
  std::ostringstream head;
  head << "HTTP/1.1 " << answer.status << " Some Words\r\nConnection: close\r\nContent-Length: "
       << (answer.claimed_length >= 0 ? answer.claimed_length
                                      : static_cast<int64_t>(answer.body.size()))
       << "\r\n";
  for (const auto& [name, value] : answer.headers) head << name << ": " << value << "\r\n";
  head << "\r\n";
  send_all(connection, head.str());
  if (request.method == "HEAD") return;
  const size_t length = answer.cut_after < 0
                            ? answer.body.size()
                            : std::min(answer.body.size(), static_cast<size_t>(answer.cut_after));
  while (answer.endless && !ending_) {
    if (!send_all(connection, answer.body)) return;
  }
  for (size_t i = 0; i < length && answer.drip_ms > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(answer.drip_ms));
    if (ending_ || !send_all(connection, answer.body.substr(i, 1))) return;
  }
  if (answer.drip_ms == 0) send_all(connection, std::string_view(answer.body).substr(0, length));
}

}  // namespace veil
