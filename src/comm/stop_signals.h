// The signals by which people and batch systems ask a run to end.
#pragma once

#include <signal.h>

namespace veil {

// A terminal sends SIGINT and SIGHUP, schedulers the others: SIGXCPU at a limit of CPU time,
// SIGUSR1 and SIGUSR2 as a warning before SIGKILL.
inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

// A launcher and its scheduler may both send one: what comes so soon after the first one is the
// same request, unless it is Ctrl-C.
inline constexpr double kSameRequestMs = 5000;

// Whether a signal that is not the first one ends the work at once.
inline bool ends_at_once(int signal, double ms_since_first) {
  return signal == SIGINT || ms_since_first > kSameRequestMs;
}

}  // namespace veil
