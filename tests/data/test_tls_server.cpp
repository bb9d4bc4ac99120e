#include "data/test_tls_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace veil {

namespace fs = std::filesystem;

TestTlsServer::TestTlsServer(const std::string& host)
    : folder_(fs::temp_directory_path() / fmt::format("veil_tls_{}", getpid())) {
  fs::create_directories(folder_);
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos;
  const std::string make = fmt::format(
      "cd '{}' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "
      "2 -subj '/CN={}' -addext 'subjectAltName={}:{}' -keyout key.pem -out cert.pem >made 2>&1",
      folder_.string(), host, is_address ? "IP" : "DNS", host);
  if (std::system(make.c_str()) != 0) return;
  // It ends a conversation when its standard input does.
  int input[2] = {-1, -1};
  if (pipe2(input, O_CLOEXEC) != 0) return;
  stays_open_ = input[1];
  process_ = fork();
  if (process_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = open((folder_ / "heard").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || chdir(folder_.c_str()) != 0) _exit(1);
    dup2(input[0], STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execlp("openssl", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", "cert.pem", "-key",
           "key.pem", nullptr);
    _exit(127);
  }
  close(input[0]);
  // "ACCEPT 127.0.0.1:PORT"
  for (int i = 0; i < 1000 && port_ == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string notes = heard();
    const size_t line = notes.find("ACCEPT "), end = notes.find('\n', line);
    if (line == std::string::npos || end == std::string::npos) continue;
    port_ = std::atoi(notes.c_str() + notes.rfind(':', end) + 1);
  }
}

TestTlsServer::~TestTlsServer() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  if (stays_open_ >= 0) close(stays_open_);
  fs::remove_all(folder_);
}

std::string TestTlsServer::address() const {
  return fmt::format("https://127.0.0.1:{}", port_);
}

std::string TestTlsServer::certificate() const {
  return (folder_ / "cert.pem").string();
}

std::string TestTlsServer::heard() const {
  std::ostringstream all;
  all << std::ifstream(folder_ / "heard").rdbuf();
  return all.str();
}

}  // namespace veil
