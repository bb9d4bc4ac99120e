// Local ranks as plain processes that meet over TCP, and the signals that launchers pass on.
#pragma once

#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/rank_link.h"

namespace veil {

// SIGINT and SIGTERM are passed on to the ranks and outlived, so that the ranks' end is seen and
// told.
class PassedSignals {
 public:
  PassedSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    sigprocmask(SIG_BLOCK, &set_, &previous_);
  }
  ~PassedSignals() { sigprocmask(SIG_SETMASK, &previous_, nullptr); }
  PassedSignals(const PassedSignals&) = delete;
  PassedSignals& operator=(const PassedSignals&) = delete;

  // The number of a signal that came, or 0.
  int take() const {
    const timespec now{};
    return std::max(0, sigtimedwait(&set_, nullptr, &now));
  }

 private:
  sigset_t set_, previous_;
};

// What launch_local_ranks does if there is no mpirun. The ranks tell themselves who failed.
int launch_processes(int ranks, const std::vector<std::string>& arguments, OnSignal on_signal);

}  // namespace veil
