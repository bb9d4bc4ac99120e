// The signals by which people and batch systems ask a run to end.
#pragma once

#include <signal.h>
#include <time.h>

namespace veil {

// A terminal sends SIGINT and SIGHUP, schedulers the others: SIGXCPU at a limit of CPU time,
// SIGUSR1 and SIGUSR2 as a warning before SIGKILL.
inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// By which `--ranks` asks its ranks to end on their own.
inline constexpr int kAskSignal = SIGUSR1;

// A launcher and its scheduler may both send one: what comes so soon after the first one is the
// same request, unless it is Ctrl-C.
inline constexpr double kSameRequestMs = 5000;

// Whether a run hears it: not a SIGHUP that this process was started to ignore, as nohup does.
inline bool is_heard(int signal) {
  struct sigaction now {};
  return signal != SIGHUP || sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN;
}

// The stop signals do not reach this process while it lives: they wait. Those that nobody has taken
// arrive at its end.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&set_);
    for (const int number : kStopSignals) {
      if (is_heard(number)) sigaddset(&set_, number);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int take() const {  // 0 if none came
    const timespec none{};
    const int number = sigtimedwait(&set_, nullptr, &none);
    return number > 0 ? number : 0;
  }

 private:
  sigset_t set_, previous_;
};

// Whether a signal that is not the first one ends the work at once.
inline bool ends_at_once(int signal, double ms_since_first) {
  return signal == SIGINT || ms_since_first > kSameRequestMs;
}

}  // namespace veil
