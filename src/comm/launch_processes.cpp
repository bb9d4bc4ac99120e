#include "comm/launch_processes.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/job_token.h"
#include "comm/rank_link.h"
#include "comm/socket_message.h"

namespace veil {
namespace {

constexpr double kEndMs = 4000;     // for the other ranks to end once one has failed
constexpr double kStoppedMs = 500;  // of these, for those that are stopped

struct LocalRank {
  pid_t pid = -1;
  std::optional<int> code;  // 128 + n for signal n
  bool stopped = false;     // by SIGSTOP: it hears nothing
};

// In the new process. Does not return.
[[noreturn]] void become_rank(int rank, int ranks, int listening, const std::string& token,
                              OnSignal on_signal, pid_t parent, const std::vector<char*>& words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  // a terminal's Ctrl-C reaches the launcher alone
  if (on_signal == OnSignal::ask_ranks) setpgid(0, 0);
  // A rank that is asked to end hears it when it can answer (cli/train_signals.h), not while it
  // starts.
  sigset_t held;
  sigemptyset(&held);
  if (on_signal == OnSignal::ask_ranks) sigaddset(&held, kAskSignal);
  sigprocmask(SIG_SETMASK, &held, nullptr);
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  for (const char* name : {"RANK", "LOCAL_RANK"}) set(name, rank);
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) set(name, ranks);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  set("MASTER_PORT", port_of(listening));
  setenv("VEIL_JOB_TOKEN", token.c_str(), 1);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("VEIL_LISTENING_SOCKET");
  if (rank == 0) {
    fcntl(listening, F_SETFD, 0);  // stays open over exec
    set("VEIL_LISTENING_SOCKET", listening);
  }
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  setenv("OMP_NUM_THREADS",
         std::to_string(std::max(1u, cores / static_cast<unsigned>(ranks))).c_str(), 0);
  execv(words[0], words.data());
  _exit(127);
}

}  // namespace

int launch_processes(int ranks, const std::vector<std::string>& arguments, OnSignal on_signal) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int listening = listen_tcp("127.0.0.1", 0);
  const std::string token = random_hex(32);
  const HeldSignals signals;
  std::fflush(stdout);
  std::vector<LocalRank> all(static_cast<size_t>(ranks));
  const auto tell = [&all](int number) {
    for (const LocalRank& rank : all) {
      if (rank.pid > 0 && !rank.code) kill(rank.pid, number);
    }
  };
  const pid_t parent = getpid();
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) become_rank(rank, ranks, listening, token, on_signal, parent, words);
    if (pid < 0) {
      const std::string reason = std::strerror(errno);
      tell(SIGKILL);
      close(listening);
      throw std::runtime_error(fmt::format("fork: {}", reason));
    }
    all[static_cast<size_t>(rank)].pid = pid;
  }
  close(listening);

  StopRequest stop;
  int first_failure = 0;
  double failed_ms = 0;
  bool forced = false;
  for (int left = ranks; left > 0;) {
    if (const int number = signals.take()) {
      const StopRequest::Act act = stop.hear(number, on_signal, steady_ms());
      if (act == StopRequest::Act::ask) tell(kAskSignal);
      if (act == StopRequest::Act::end) {
        if (failed_ms == 0) failed_ms = steady_ms();
        tell(SIGINT);  // training ranks end at once by it, whatever came before
      }
    }
    if (failed_ms > 0 && steady_ms() - failed_ms > kStoppedMs) {
      for (const LocalRank& rank : all) {  // the others have said which one hangs
        if (rank.stopped && !rank.code) kill(rank.pid, SIGKILL);
      }
    }
    if (failed_ms > 0 && steady_ms() - failed_ms > kEndMs) {
      if (!forced && !stop.came())  // ranks that had joined would have told it and ended
        std::fputs(
            fmt::format("veil: a rank ended before it had joined (exit code {})\n", first_failure)
                .c_str(),
            stderr);
      forced = true;
      tell(SIGKILL);
    }
    for (LocalRank& rank : all) {
      int status = 0;
      if (rank.code || waitpid(rank.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) != rank.pid)
        continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        rank.stopped = WIFSTOPPED(status);
        continue;
      }
      rank.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      --left;
      // asked to end before they had joined, the others may have failed because this one ended
      if (stop.came() && *rank.code == kExitStopped) first_failure = kExitStopped;
      if (*rank.code == 0 || first_failure) continue;
      first_failure = *rank.code;
      if (failed_ms == 0 && !stop.came()) failed_ms = steady_ms();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return stop.came() ? stop.exit_code(first_failure, on_signal) : first_failure;
}

}  // namespace veil
