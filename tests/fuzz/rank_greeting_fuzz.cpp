// What comes to a rank from those who connect to it for collectives. "TOKEN" at the beginning is
// replaced by the world's token, "ALMOST" and a byte by one that differs at the place that the byte
// says.
#include <sys/socket.h>
#include <unistd.h>

#include "comm/socket_message.h"
#include "comm/wire.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  constexpr std::string_view kWord = "TOKEN", kAlmost = "ALMOST",
                             kToken = "0123456789abcdef0123456789abcdef";
  std::string bytes(fuzz::text_of(data, size));
  const bool known = bytes.starts_with(kWord);
  if (known) bytes.replace(0, kWord.size(), kToken);
  if (bytes.starts_with(kAlmost) && bytes.size() > kAlmost.size()) {
    std::string other(kToken);
    other[static_cast<unsigned char>(bytes[kAlmost.size()]) % kToken.size()] ^= 1;
    bytes.replace(0, kAlmost.size() + 1, other);
  }
  // A local socket that is taken for TCP's: ports would run out.
  static const std::string name = "veil_fuzz_" + std::to_string(getpid());
  TcpPlaces places;
  places.listening = listen_locally(name);
  places.ranks.resize(2);
  places.token = kToken;
  const auto wire = make_tcp_wire(places);
  const int fd = connect_locally(name);
  if (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) std::abort();
  std::unique_ptr<Channel> channel;
  RankTask opening = wire->open(channel);
  bool opened = false;
  for (int turn = 0; turn < 3 && !opened; ++turn) opened = opening.resume();
  fuzz::require(!opened || opening.error() || known, "nobody is let in without the token");
  if (channel) {
    char received[8];
    const auto transfers = channel->transfers();
    transfers->receive(received, sizeof received, 1);
    close(fd);
    const bool whole = transfers->completed();
    const size_t greeting = kToken.size() + 2 * sizeof(int32_t);
    fuzz::require(whole == (bytes.size() >= greeting + sizeof received),
                  "a message is what follows the greeting");
  } else {
    close(fd);
  }
  return 0;
}
