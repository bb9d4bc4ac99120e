#include "cli/train_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/shell_word.h"
#include "comm/rank_link.h"
#include "comm/stop_signals.h"

namespace veil {
namespace {

std::atomic<bool> trains = false;  // the first step has begun
std::atomic<int> signals_came = 0;
// infinite until it is known, for one handler may interrupt another
std::atomic<double> first_came_ms = std::numeric_limits<double>::infinity();
std::atomic<bool> ctrl_c_came = false;  // one of them was Ctrl-C
static_assert(std::atomic<double>::is_always_lock_free);
// What a second signal says, written before `trains` is set; empty on all ranks but the first.
std::string last_words;  // NOLINT: a handler has no arguments
bool speaks_to_people = false;

void say_from_handler(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // there is nobody to tell
}

// The first signal asks for a checkpoint after the step. A second one ends the process at once; a
// second one that follows at once is the same request, unless one of them was Ctrl-C
// (comm/stop_signals.h).
void on_stop_signal(int came) {
  if (!trains) {
    if (speaks_to_people)
      say_from_handler("\nveil: stopped before the first step; nothing is lost\n");
    _exit(kExitStopped);
  }
  if (came == SIGINT) ctrl_c_came = true;
  if (signals_came.fetch_add(1) == 0) {
    first_came_ms = steady_ms();
    if (speaks_to_people)
      say_from_handler(
          "\nveil: stopping after this step with a checkpoint; a second Ctrl-C stops at once "
          "(another signal: after 5 s)\n");
    return;
  }
  if (!ctrl_c_came && !ends_at_once(came, steady_ms() - first_came_ms)) return;
  say_from_handler(last_words);
  std::signal(came, SIG_DFL);
  std::raise(came);
}

}  // namespace

void hear_stop_signals(bool speaks) {
  speaks_to_people = speaks;
  sigset_t heard;
  sigemptyset(&heard);
  for (const int number : kStopSignals) {
    if (!is_heard(number)) continue;
    std::signal(number, on_stop_signal);
    sigaddset(&heard, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &heard, nullptr);  // a launcher may have held them until now
}

void stop_after_steps(const std::string& folder) {
  if (speaks_to_people)
    last_words = fmt::format(
        "\nveil: stopped at once, without a checkpoint of the last steps; `veil train --resume {}` "
        "continues from the newest one\n",
        shell_word(folder));
  trains = true;
}

bool stop_requested() {
  return signals_came > 0;
}

}  // namespace veil
