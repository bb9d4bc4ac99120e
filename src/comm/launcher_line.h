// A rank's line to launch_local_ranks: who died, and why, is told there once.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

namespace veil {

class LauncherLine {
 public:
  // Connects to the launcher's socket and takes over the launcher's own standard output and error, so that they are
  // what the person sees (a terminal stays a terminal) and not mpirun's pipes. Should the launcher die or ask for it,
  // this process ends.
  LauncherLine(const std::string& socket, int rank);
  ~LauncherLine();
  LauncherLine(const LauncherLine&) = delete;
  LauncherLine& operator=(const LauncherLine&) = delete;

  void fail(const std::string& reason, int exit_code);
  void goodbye();  // this rank ends as it should

 private:
  int fd_;
  std::atomic<bool> leaving_{false};
  std::thread listener_;
};

}  // namespace veil
