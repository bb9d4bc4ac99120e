// The whole program in a process forked from the test, so that LibTorch is loaded once: for tests
// that run it thousands of times.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"

namespace veil {

struct ForkedAnswer {
  int code = -1;   // -1: ended by a signal
  int signal = 0;  // that ended it; SIGALRM: it took longer than allowed
  std::string out, err;
  int64_t complaints() const { return std::count(err.begin(), err.end(), '\n'); }
};

// `veil WORDS` with `folder` as its working folder; what it prints goes into files of `notes`.
inline ForkedAnswer forked_veil(const std::filesystem::path& folder,
                                const std::filesystem::path& notes,
                                const std::vector<std::string>& words, unsigned deadline_s) {
  const std::string out = (notes / "out").string(), err = (notes / "err").string();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (chdir(folder.c_str()) != 0 || !std::freopen(out.c_str(), "w", stdout) ||
        !std::freopen(err.c_str(), "w", stderr))
      _exit(98);
    alarm(deadline_s);
    const int code = run_veil(words);
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const auto text = [](const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
  };
  ForkedAnswer answer;
  if (WIFEXITED(status)) answer.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) answer.signal = WTERMSIG(status);
  answer.out = text(out);
  answer.err = text(err);
  return answer;
}

}  // namespace veil
