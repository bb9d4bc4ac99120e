#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/launch_processes.h"
#include "comm/rank_link.h"
#include "comm/rank_watch.h"

namespace veil {
namespace {

constexpr double kPatienceMs = 4000;  // for mpirun to end the other ranks once one has failed

std::string find_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = folder + "/" + program;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

// Whether one process may read another's memory, which makes MPI's messages one copy instead of
// two. Containers often forbid it, and Open MPI complains on every message.
bool processes_share_memory() {
  int value = 1, seen = 0;
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  if (child < 0) return false;
  const iovec local{&seen, sizeof seen}, remote{&value, sizeof value};
  const bool allowed =
      process_vm_readv(child, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof seen);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return allowed;
}

std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks,
                                        const std::vector<std::string>& arguments) {
  std::vector<std::string> command{
      mpirun, "-n", std::to_string(ranks), "--oversubscribe", "--bind-to", "none", "--quiet"};
  const auto set = [&](const char* name, const std::string& value) {
    command.insert(command.end(), {"--mca", name, value});
  };
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  set("plm", "isolated");  // this machine only: no ssh
  set("pml", "ob1");
  set("btl", "vader,self");
  if (!processes_share_memory()) set("btl_vader_single_copy_mechanism", "none");
  set("mpi_yield_when_idle", "1");
  set("opal_signal", "");  // no stack dumps: the launcher says which rank died
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// What mpirun itself says is kept, and shown only if no rank has said anything better.
class MpirunProcess {
 public:
  MpirunProcess(const std::vector<std::string>& command, const std::string& socket, int ranks,
                OnSignal on_signal) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
    output_ = ends[0];
    fcntl(output_, F_SETFL, O_NONBLOCK);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::string threads = std::to_string(std::max(1u, cores / static_cast<unsigned>(ranks)));
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kExitFailed);
      // a terminal's Ctrl-C reaches the launcher alone
      if (on_signal == OnSignal::ask_ranks) setpgid(0, 0);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      dup2(ends[1], STDERR_FILENO);
      setenv("VEIL_LAUNCHER_SOCKET", socket.c_str(), 1);
      setenv("OMP_NUM_THREADS", threads.c_str(), 0);
      execv(words[0], words.data());
      _exit(127);
    }
    close(ends[1]);
    if (pid_ < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  }
  ~MpirunProcess() { close(output_); }
  MpirunProcess(const MpirunProcess&) = delete;
  MpirunProcess& operator=(const MpirunProcess&) = delete;

  void signal(int number) const { kill(pid_, number); }
  const std::string& said() const { return said_; }

  // The exit code once it has ended, 128 + n for signal n.
  std::optional<int> ended() {
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(output_, buffer, sizeof buffer)) > 0;)
      said_.append(buffer, static_cast<size_t>(n));
    if (said_.size() > 1 << 16) said_.erase(0, said_.size() - (1 << 16));
    if (!code_) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_)
        code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return code_;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string said_;
  std::optional<int> code_;
};

std::string how_it_died(int code) {
  if (code > 128) return fmt::format("died (signal {}, {})", code - 128, strsignal(code - 128));
  return code ? fmt::format("ended without a word (exit code {})", code) : "ended without a word";
}

}  // namespace

int launch_local_ranks(int ranks, const std::vector<std::string>& arguments, OnSignal on_signal) {
  if (ranks < 1) field_error("ranks", "must be at least 1, got {}", ranks);
  const std::string mpirun = built_with_mpi() ? find_on_path("mpirun") : "";
  if (mpirun.empty()) return launch_processes(ranks, arguments, on_signal);

  const std::string socket = fmt::format("veil-{}-{:08x}", getpid(), std::random_device{}());
  RankWatch watch(listen_locally(socket), RankWatch::Where::local);
  const HeldSignals signals;
  std::fflush(stdout);
  MpirunProcess process(mpirun_command(mpirun, ranks, arguments), socket, ranks, on_signal);

  StopRequest stop;
  double failed_at = 0;
  bool told = false, asks = false;
  std::optional<int> code;
  while (!(code = process.ended())) {
    watch.look(20);
    if (const int number = signals.take()) {
      const StopRequest::Act act = stop.hear(number, on_signal, steady_ms());
      if (act == StopRequest::Act::ask) asks = true;
      if (act == StopRequest::Act::end) {
        if (on_signal == OnSignal::ask_ranks)  // mpirun gives the ranks no time to say it
          std::fputs(
              "veil: stopped at once, without a checkpoint of the last steps; `--resume` continues "
              "from the newest one\n",
              stderr);
        process.signal(number == SIGINT ? SIGINT : SIGTERM);
      }
    }
    // mpirun is not asked to pass it on: whether it does depends on its version. Ranks that have
    // joined can answer.
    if (asks && watch.joined() == ranks) {
      watch.signal_ranks(kAskSignal);
      asks = false;
    }
    const auto& failure = watch.failure();
    if (!failure || (stop.came() && !failure->told)) continue;
    if (failure->told && !told) {
      std::fputs(failure_line(failure->rank, ranks, failure->reason).c_str(), stderr);
      watch.tell_all({Frame::end, failure->exit_code, ""});
      told = true;
    }
    if (failed_at == 0) failed_at = steady_ms();
    if (steady_ms() - failed_at > kPatienceMs) {
      watch.tell_all({Frame::end, failure->exit_code, ""});
      process.signal(SIGKILL);
    }
  }
  watch.look(0);
  // mpirun was to end them; a rank that is stopped may have outlived it
  if (stop.came() || watch.failure()) watch.signal_ranks(SIGKILL);
  if (stop.came()) return stop.exit_code(*code, on_signal);
  const auto& failure = watch.failure();
  if (failure && failure->told) {
    if (!told) std::fputs(failure_line(failure->rank, ranks, failure->reason).c_str(), stderr);
    return failure->exit_code;
  }
  if (watch.joined() < ranks && *code != 0) {
    // It has no line yet, so what it said went through mpirun.
    std::fputs(fmt::format("veil: a rank ended before it had joined (exit code {})\n{}", *code,
                           process.said())
                   .c_str(),
               stderr);
  } else if (failure) {
    std::fputs(failure_line(failure->rank, ranks, how_it_died(*code)).c_str(), stderr);
    return *code ? *code : kExitFailed;
  }
  return *code;
}

}  // namespace veil
