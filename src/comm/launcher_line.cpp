#include "comm/launcher_line.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/wire.h"

namespace veil {

LauncherLine::LauncherLine(const std::string& socket, int rank) : fd_(connect_locally(socket)) {
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

}  // namespace veil
