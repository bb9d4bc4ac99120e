// A web server on a port of this machine, for tests: one request a connection, answered by a
// function.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace veil {

struct TestRequest {
  std::string method, path;                    // path with its query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string raw;                             // everything that came
};

struct TestAnswer {
  int status = 200;
  std::map<std::string, std::string> headers = {};
  std::string body = "";
  int64_t cut_after = -1;       // bytes of the body after which the connection ends; -1: none
  int64_t claimed_length = -1;  // Content-Length if it is not the body's; -1: the body's
  int drip_ms = 0;              // before each byte of the body
  bool endless = false;         // the body again and again, until nobody listens
};

class TestHttpServer {
 public:
  explicit TestHttpServer(std::function<TestAnswer(const TestRequest&)> answer);
  ~TestHttpServer();
  TestHttpServer(const TestHttpServer&) = delete;
  TestHttpServer& operator=(const TestHttpServer&) = delete;

  std::string address() const;  // "http://127.0.0.1:PORT"
  std::vector<TestRequest> requests() const;
  void forget_requests();

 private:
  void serve();
  void converse(int connection);

  std::function<TestAnswer(const TestRequest&)> answer_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;
  std::vector<TestRequest> requests_;
  std::thread thread_;
};

}  // namespace veil
