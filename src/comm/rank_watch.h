// Watches over ranks by an open connection each: one that closes without a goodbye is a rank that
// died, however it died.
#pragma once

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
  // owns the socket
  RankWatch(int listening, Where where) : listening_(listening), where_(where) {}
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Hears what came, for at most `timeout_ms`. A local rank is given this process's output when it
  // joins, and its goodbye is answered.
  void look(int timeout_ms);
  void tell_all(const Frame& frame);

  // Rank, address and hello's text of those that joined; the address of TCP only.
  struct Joined {
    int rank = 0;
    std::string address, text;
  };
  const std::vector<Joined>& who_joined() const { return who_joined_; }

  int open() const { return static_cast<int>(lines_.size()); }  // connections
  int joined() const { return static_cast<int>(who_joined_.size()); }
  int left() const { return left_; }                                      // said goodbye
  const std::optional<RankFailure>& failure() const { return failure_; }  // the first one

 private:
  struct Line {
    int fd = -1, rank = -1;
    bool said_goodbye = false;
  };
  void admit();
  bool hear(Line& line);  // false when it has closed

  int listening_;
  Where where_;
  std::vector<Line> lines_;
  std::vector<Joined> who_joined_;
  int left_ = 0;
  std::optional<RankFailure> failure_;
};

}  // namespace veil
