// Local ranks as plain processes that meet over TCP, and the signals that launchers pass on.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/rank_link.h"
#include "comm/stop_signals.h"

namespace veil {

// What a launcher makes of the signals that came so far.
class StopRequest {
 public:
  enum class Act { nothing, ask, end };
  Act hear(int number, OnSignal on_signal, double now_ms) {
    if (first_ == 0) {
      first_ = last_ = number;
      first_ms_ = now_ms;
      return on_signal == OnSignal::ask_ranks ? Act::ask : Act::end;
    }
    if (on_signal == OnSignal::ask_ranks && !ends_at_once(number, now_ms - first_ms_))
      return Act::nothing;
    last_ = number;
    forced_ = true;
    return Act::end;
  }
  bool came() const { return first_ != 0; }
  // The launcher's exit code then, from that of the ranks.
  int exit_code(int of_ranks, OnSignal on_signal) const {
    if (on_signal == OnSignal::end_ranks || forced_) return 128 + last_;
    return of_ranks == kExitDone || of_ranks == kExitStopped ? of_ranks : kExitFailed;
  }

 private:
  int first_ = 0, last_ = 0;
  double first_ms_ = 0;
  bool forced_ = false;
};

// What launch_local_ranks does if there is no mpirun. The ranks tell themselves who failed.
int launch_processes(int ranks, const std::vector<std::string>& arguments, OnSignal on_signal);

}  // namespace veil
