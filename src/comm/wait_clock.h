// How long a rank waits for others before it says so, and before it gives up.
#pragma once

namespace veil {

struct WaitLimits {
  double timeout_s = 0;  // the wait ends the run after so long; 0: never
  // Between two lines that tell who is waited for.
  double notice_s() const { return timeout_s > 0 && timeout_s < 60 ? timeout_s / 2 : 30; }
};

// The time that one wait has taken. Time in which this process itself did not run (the whole job
// was suspended, the machine slept) does not count.
class WaitClock {
 public:
  enum class Due { nothing, notice, end };

  // What is due now. To be asked at least once a second. Once the end is due, it stays due.
  Due look(const WaitLimits& limits, double now_ms);
  void restart() { *this = {}; }  // something moved
  double waited_s() const { return waited_ms_ / 1000; }

 private:
  double waited_ms_ = 0, looked_ms_ = 0;  // looked_ms_ 0: not yet
  int notices_ = 0;
};

}  // namespace veil
