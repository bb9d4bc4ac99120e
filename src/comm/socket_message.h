// Short messages over a socket, for what ranks and launcher tell each other outside collectives.
#pragma once

#include <optional>
#include <string>

namespace veil {

struct Frame {
  enum Kind : int { hello = 1, failed, goodbye, share, end };
  Kind kind = hello;
  int number = 0;    // hello: the rank; failed and end: the exit code
  std::string text;  // failed: the reason; share: the bytes
};

// False or empty if the other side is gone. Neither raises SIGPIPE.
bool send_frame(int fd, const Frame& frame);
std::optional<Frame> receive_frame(int fd);

// Unix sockets in the abstract namespace, of this machine and this user only. They throw
// std::runtime_error.
int listen_locally(const std::string& name);
int accept_locally(int listening);  // -1 if the other side is another user's
int connect_locally(const std::string& name);

// Hands over this process's standard output and error; makes the received ones this process's own.
void send_output(int fd);
void receive_output(int fd);

// TCP. Port 0 listens at any free one. `connect` retries until `seconds` have passed. They throw
// UserError naming address and port. A connection to a machine that is gone breaks within a minute.
int listen_tcp(int port);
int accept_tcp(int listening);  // -1 if nobody came
int connect_tcp(const std::string& address, int port, double seconds);
int port_of(int listening);
std::string peer_address(int fd);  // of a connection's other end, in numbers
bool is_loopback(const std::string& address);

}  // namespace veil
