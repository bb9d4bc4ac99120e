// `failing_rank [--ranks W] HOW RANK [SECONDS]`: a world in which one rank fails in a given way
// while the others wait for it, at most so long. For rank_failure_test.cpp.
#include <ATen/ops/zeros.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/call_place.h"
#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/wait_watch.h"

namespace {

void fail_this_way(const std::string& how) {
  if (how == "throw") throw std::runtime_error("the loss is not a number");
  if (how == "user") throw veil::UserError("no such file", veil::kExitUsage);
  if (how == "thread") std::thread([] { throw std::runtime_error("thrown in a thread"); }).join();
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "segfault") raise(SIGSEGV);
  if (how == "exit") _exit(7);
  if (how == "quit") std::exit(0);
  if (how.starts_with("stop")) raise(SIGSTOP);
}

int run(const veil::RankInfo& info, const std::string& how, int failing) {
  veil::World world(info);
  try {
    const auto ranks = veil::make_host_communicator(0, veil::cpu_device());
    std::puts("joined");
    std::fflush(stdout);
    ranks->barrier();
    if (how == "all") throw std::runtime_error("all ranks fail");
    if (info.rank == failing) fail_this_way(how);
    if (how == "none") return 0;
    if (how == "stop_unseen") {  // as on a GPU: nobody sees who waits for whom
      const veil::CallPlaceScope step(7);
      veil::WaitWatch waits({info.collective_timeout_s}, info.rank);
      waits.wait_in("collectives by NCCL", [] { return sleep(60); });
    }
    {
      const veil::CallPlaceScope step(7);
      const veil::CallPlaceScope row("body", 3, "reduce", "layers.1");
      ranks->all_reduce(at::zeros({1000}))->wait();
    }
    sleep(60);
  } catch (const veil::UserError& error) {
    world.fail(error.what(), error.exit_code());
  } catch (const std::exception& error) {
    world.fail(error.what(), veil::kExitFailed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  try {
    veil::RankInfo info = veil::rank_info_from_environment();
    if (words.at(0) == "--ranks") {
      const std::vector<std::string> rest(words.begin() + 2, words.end());
      return veil::launch_local_ranks(std::stoi(words.at(1)), rest);
    }
    if (words.at(0) == "early" && info.rank == std::stoi(words.at(1))) return 9;
    if (words.size() > 2) info.collective_timeout_s = std::stod(words[2]);
    return run(info, words.at(0), std::stoi(words.at(1)));
  } catch (const veil::UserError& error) {
    std::fprintf(stderr, "veil: %s\n", error.what());
    return error.exit_code();
  }
}
