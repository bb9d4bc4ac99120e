// Short messages over a socket, for what ranks and launcher tell each other outside collectives.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace veil {

struct Frame {
  enum Kind : int { hello = 1, failed, goodbye, share, end, challenge, refused, ping, pong };
  Kind kind = hello;
  int number = 0;    // hello: the rank; failed and end: the exit code
  std::string text;  // failed: the reason; share: the bytes; challenge: a nonce
};

// False or empty if the other side is gone. Neither raises SIGPIPE.
bool send_frame(int fd, const Frame& frame);
std::optional<Frame> receive_frame(int fd);

// Frames of a connection as their bytes come: never waits for the rest of one.
class FrameReader {
 public:
  // Takes what has come. False if the other side is gone, or announced more than `most_bytes`.
  bool take(int fd, size_t most_bytes);
  std::optional<Frame> next();  // nothing: not whole yet

 private:
  std::string bytes_;
};

// Whatever is received or sent on the socket fails after so long; 0: never.
void set_socket_patience(int fd, double receive_s, double send_s);

// Unix sockets in the abstract namespace, of this machine and this user only. They throw
// std::runtime_error.
int listen_locally(const std::string& name);
int accept_locally(int listening);  // -1 if the other side is another user's
int connect_locally(const std::string& name);
pid_t peer_process(int fd);  // that connected; 0: not known

// Hands over this process's standard output and error; makes the received ones this process's own.
void send_output(int fd);
void receive_output(int fd);

// TCP. Listens at this address of the machine; "" and an address of another machine: at all of
// them. Port 0 is any free one. `connect` retries until `seconds` have passed. They throw UserError
// naming address and port. A connection to a machine that is gone breaks within a minute.
int listen_tcp(const std::string& address, int port);
int accept_tcp(int listening);  // -1 if nobody came
int connect_tcp(const std::string& address, int port, double seconds);
int port_of(int listening);
std::string peer_address(int fd);   // of a connection's other end, in numbers
std::string local_address(int fd);  // of this end; "" if it is every address of the machine
bool is_loopback(const std::string& address);  // localhost too

}  // namespace veil
