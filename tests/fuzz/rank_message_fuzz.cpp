// What a rank or a launcher receives from whoever is connected.
#include <sys/socket.h>
#include <unistd.h>

#include "comm/socket_message.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
  // Inputs are shorter than a socket's buffer.
  if (send(ends[0], data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  shutdown(ends[0], SHUT_WR);
  size_t received = 0;
  while (const auto frame = receive_frame(ends[1])) received += frame->text.size();
  fuzz::require(received <= size, "messages hold what was sent");
  close(ends[0]);
  close(ends[1]);
  return 0;
}
