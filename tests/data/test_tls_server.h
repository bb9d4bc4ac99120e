// A web server that speaks TLS with a certificate of its own making, by the program openssl.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace veil {

class TestTlsServer {
 public:
  // `host`: whom the certificate names.
  explicit TestTlsServer(const std::string& host);
  ~TestTlsServer();
  TestTlsServer(const TestTlsServer&) = delete;
  TestTlsServer& operator=(const TestTlsServer&) = delete;

  bool runs() const { return port_ > 0; }  // false if there is no such program
  std::string address() const;             // "https://127.0.0.1:PORT"
  std::string certificate() const;         // its file
  std::string heard() const;               // what came, deciphered, and its own notes

 private:
  std::filesystem::path folder_;
  pid_t process_ = -1;
  int port_ = 0, stays_open_ = -1;
};

}  // namespace veil
