// Waits of the calling thread that are no messages between ranks: for the data loader's threads, or
// for a GPU whose collectives the host cannot see. A thread looks at them meanwhile, and does what
// is done if a collective takes too long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "comm/overdue.h"

namespace veil {

class WaitWatch {
 public:
  WaitWatch(WaitLimits limits, int rank);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

  // Run `work` and answer what it answers. A wait for something of this rank's own: "its data
  // loader"; and one for other ranks in `call`, which names those that do not answer any more.
  template <typename Work>
  auto wait_for(const char* whom, Work work) {
    const Scope scope(*this, {.whom = whom});
    return work();
  }
  template <typename Work>
  auto wait_in(const char* call, Work work) {
    const Scope scope(*this, {.call = call});
    return work();
  }

 private:
  class Scope {
   public:
    Scope(WaitWatch& watch, OverdueWait wait) : watch_(watch) { watch.enter(std::move(wait)); }
    ~Scope() { watch_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WaitWatch& watch_;
  };
  void enter(OverdueWait wait);
  void leave();
  void watch();

  WaitLimits limits_;
  int rank_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<OverdueWait> wait_;
  WaitClock clock_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace veil
