// What a stranger, or a rank, sends to the watch over ranks. The first byte: bit 0, whether a token
// is needed; bits 1 and 2, in how many pieces the rest comes. "TOKEN" in a hello is the right one.
#include <sys/socket.h>
#include <unistd.h>

#include "comm/rank_watch.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  if (size == 0) return 0;
  std::string_view rest = fuzz::text_of(data + 1, size - 1);
  const bool open_to_all = (data[0] & 1) == 0;
  const size_t pieces = 1 + ((data[0] >> 1) & 3);
  const auto has_token = [](const Frame& hello) { return hello.text.starts_with("TOKEN"); };
  // A local socket that is taken for TCP's: ports would run out.
  static const std::string name = "veil_fuzz_" + std::to_string(getpid());
  RankWatch::Accepts accepts;
  if (!open_to_all)
    accepts = [&](const Frame& hello, const std::string&) { return has_token(hello); };
  RankWatch watch(listen_locally(name), RankWatch::Where::tcp, accepts);
  const int fd = connect_locally(name);
  watch.look(0);
  while (!rest.empty()) {
    const std::string_view piece = rest.substr(0, rest.size() / pieces + 1);
    rest.remove_prefix(piece.size());
    // The watch may have closed the connection.
    if (send(fd, piece.data(), piece.size(), MSG_NOSIGNAL) != std::ssize(piece)) break;
    watch.look(0);
  }
  watch.look(0);
  close(fd);
  watch.look(0);
  watch.look(0);
  fuzz::require(watch.joined() <= 1, "a connection is one rank at most");
  for (const RankWatch::Joined& joined : watch.who_joined()) {
    fuzz::require(joined.rank >= 0, "ranks are counted from 0");
    fuzz::require(open_to_all || joined.text.starts_with("TOKEN"), "nobody joins without a token");
  }
  fuzz::require(!watch.failure() || watch.joined() == 1, "only a rank can fail");
  fuzz::require(watch.joined() == 0 || watch.left() > 0 || watch.failure().has_value(),
                "a rank that goes without a goodbye is missed");
  return 0;
}
