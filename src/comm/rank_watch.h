// Watches over ranks by an open connection each: one that closes without a goodbye is a rank that
// died, however it died.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/socket_message.h"

namespace veil {

struct RankFailure {
  int rank = 0;
  bool told = false;  // the rank said why; otherwise it just went
  int exit_code = 1;
  std::string reason;
};

class RankWatch {
 public:
  enum class Where { local, tcp };
  // Whether a hello that answers this challenge is a rank's. Over TCP every connection is sent a
  // challenge of its own first; a local one is known by its user.
  using Accepts = std::function<bool(const Frame& hello, const std::string& challenge)>;
  // owns the socket
  RankWatch(int listening, Where where, Accepts accepts = {});
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Hears what came, for at most `timeout_ms`; never waits for the rest of a message. A local rank
  // is given this process's output when it joins, and its goodbye is answered. A connection that
  // does not say a whole hello within 10 seconds is closed.
  void look(int timeout_ms);
  void tell_all(const Frame& frame);
  void tell(int rank, const Frame& frame);
  // Sends a signal to every local rank that is connected.
  void signal_ranks(int number) const;
  // Nobody else is let in, and nothing listens any more.
  void close_door();

  // Rank, address and hello's text of those that joined; the address of TCP only.
  struct Joined {
    int rank = 0;
    std::string address, text;
  };
  const std::vector<Joined>& who_joined() const { return who_joined_; }

  int open() const { return static_cast<int>(lines_.size()); }  // connections
  int joined() const { return static_cast<int>(who_joined_.size()); }
  // Ranks that have said nothing for so long, although they were asked (Frame::ping).
  std::vector<int> silent(double ms) const;
  int refused() const { return refused_; }  // hellos that were not accepted
  int left() const { return left_; }        // said goodbye
  const std::optional<RankFailure>& failure() const { return failure_; }  // the first one

 private:
  struct Line {
    int fd = -1, rank = -1;
    pid_t process = 0;  // a local rank's
    bool said_goodbye = false;
    std::string challenge;
    double until_ms = 0;  // a connection without a rank ends then
    double heard_ms = 0;  // when something came last
    FrameReader reader;
  };
  void admit();
  bool hear(Line& line);                              // false when it has closed
  bool understand(Line& line, const Frame& frame);    // false if it is to be closed
  bool welcome_rank(Line& line, const Frame& frame);  // likewise

  int listening_;
  Where where_;
  Accepts accepts_;
  std::vector<Line> lines_;
  std::vector<Joined> who_joined_;
  int left_ = 0, refused_ = 0;
  std::optional<RankFailure> failure_;
};

}  // namespace veil
