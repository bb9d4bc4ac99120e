#include "suite/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace veil {
namespace {

constexpr double kPatienceMs = 5000;  // from asking a program to end to ending it
constexpr double kLookMs = 200;       // the signals are waited for; this is for one that was lost

// Signals that are taken one by one instead of ending the process, without a handler or a global.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&held_, number);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // The next one, or 0 when the time is over.
  int next(double ms) const {
    timespec wait{};
    wait.tv_sec = static_cast<time_t>(ms / 1000);
    wait.tv_nsec = static_cast<long>((ms - static_cast<double>(wait.tv_sec) * 1000) * 1e6);
    const int number = sigtimedwait(&held_, nullptr, &wait);
    return number < 0 ? 0 : number;
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_{}, before_{};
};

[[noreturn]] void become(char* const* argv, const std::string& log, pid_t parent,
                         const sigset_t& mask) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int nothing = open("/dev/null", O_RDONLY),
            out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool ready = getppid() == parent && nothing >= 0 && out >= 0 && dup2(nothing, 0) >= 0 &&
                     dup2(out, 1) >= 0 && dup2(out, 2) >= 0;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  if (ready) execv(argv[0], argv);
  _exit(127);
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& words, const std::string& log,
                   std::optional<double> timeout_s) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const HeldSignals signals;
  const pid_t parent = getpid(), child = fork();
  if (child < 0) user_error("cannot start {}: {}", words[0], std::strerror(errno));
  if (child == 0) become(argv.data(), log, parent, signals.before());
  setpgid(child, child);
  ChildEnd end;
  const double begin = steady_ms();
  double asked_to_end = 0;
  const auto ask = [&](bool& why) {
    why = true;
    asked_to_end = steady_ms();
    kill(-child, SIGTERM);
  };
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    const int signal = signals.next(kLookMs);
    const bool asked = end.timed_out || end.interrupted;
    if ((signal == SIGINT || signal == SIGTERM) && !end.interrupted) ask(end.interrupted);
    if (!asked && timeout_s && steady_ms() - begin > *timeout_s * 1000) ask(end.timed_out);
    if (asked && steady_ms() - asked_to_end > kPatienceMs) kill(-child, SIGKILL);
  }
  if (end.timed_out || end.interrupted) kill(-child, SIGKILL);  // what it started and left behind
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace veil
