// What a rank or a launcher receives from whoever is connected, all at once and as it comes.
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "comm/socket_message.h"
#include "fuzz/fuzz.h"

namespace {

// A connection of which `bytes` were sent, and then nothing more. Inputs are shorter than a
// socket's buffer.
struct Connection {
  int ends[2];
  explicit Connection(std::string_view bytes) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
    send_bytes(bytes);
  }
  ~Connection() {
    for (const int end : ends) close(end);
  }
  void send_bytes(std::string_view bytes) const {
    if (send(ends[0], bytes.data(), bytes.size(), 0) != std::ssize(bytes)) std::abort();
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  constexpr size_t kMostBytes = size_t{64} << 20;
  const std::string_view bytes = fuzz::text_of(data, size);
  std::vector<std::string> texts;
  {
    const Connection connection(bytes);
    shutdown(connection.ends[0], SHUT_WR);
    while (auto frame = receive_frame(connection.ends[1])) texts.push_back(std::move(frame->text));
  }
  size_t received = 0;
  for (const std::string& text : texts) received += text.size();
  fuzz::require(received <= size, "messages hold what was sent");

  // The same bytes in two parts.
  const Connection connection(bytes.substr(0, size / 2));
  FrameReader reader;
  std::vector<std::string> parts;
  bool open = true;
  const auto take = [&] {
    open = open && reader.take(connection.ends[1], kMostBytes);
    while (auto frame = reader.next()) parts.push_back(std::move(frame->text));
  };
  take();
  connection.send_bytes(bytes.substr(size / 2));
  for (size_t i = 0; i <= texts.size(); ++i) take();
  fuzz::require(parts == texts, "messages are the same however they come");
  return 0;
}
