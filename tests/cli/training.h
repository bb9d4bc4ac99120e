// Short runs of `veil train` for tests, and processes that can be signalled while they train.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/test_paths.h"
#include "cli/program.h"
#include "comm/stop_signals.h"
#include "models/weights.h"

namespace veil {

class TrainingTest : public ProgramTest {
 protected:
  // A tiny model on sequences of 16 bytes; a checkpoint every other step if nothing else is said.
  static std::string words(const std::string& more) {
    return "train --model llama-tiny --from-scratch --data '" + source_root() +
           "/examples/text' --seq-length 16 --device cpu --learning-rate 0.003 "
           "--evaluation-samples 8 " +
           std::string(more.find("--checkpoint-every") == std::string::npos
                           ? "--checkpoint-every 2 "
                           : "") +
           more;
  }

  // One line, exit code 2, and nothing made.
  void expect_refused(const std::string& line, const std::string& says) const {
    SCOPED_TRACE(line);
    const auto before = entries();
    const Answer answer = refused_veil(line);
    EXPECT_EQ(answer.code, kExitUsage);
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, ::testing::StartsWith("veil: "));
    EXPECT_THAT(answer.err, ::testing::HasSubstr(says));
    EXPECT_EQ(answer.out, "");
    EXPECT_EQ(entries(), before) << "something was left behind";
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(work()))
      found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  // A process that trains, in a group of its own.
  class Child {
   public:
    Child(const std::filesystem::path& folder, const std::string& line,
          const std::string& environment = "")
        : folder_(folder) {
      pid_ = fork();
      if (pid_ != 0) return;
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing running
      // a shell's background job ignores Ctrl-C
      for (const int number : kStopSignals) ::signal(number, SIG_DFL);
      const std::string program = "cd '" + folder_.string() +
                                  "' && exec /usr/bin/env OMP_NUM_THREADS=1 " + environment + " '" +
                                  veil_program() + "' " + line + " >child.out 2>child.err";
      execl("/bin/sh", "sh", "-c", program.c_str(), nullptr);
      _exit(127);
    }
    ~Child() {
      if (!ended_) kill_all();
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    bool runs() {
      if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
      return !ended_;
    }
    void signal(int number) { kill(pid_, number); }
    pid_t pid() const { return pid_; }
    int wait() {
      if (!ended_) waitpid(pid_, &status_, 0);
      ended_ = true;
      return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
    }
    // Its group, and the ranks that mpirun has put into groups of their own: they are known by the
    // folder in their command lines.
    void kill_all() {
      kill(-pid_, SIGKILL);
      for (int round = 0; round < 200; ++round) {
        const std::vector<pid_t> left = of_the_folder();
        if (left.empty()) break;
        for (const pid_t process : left) kill(process, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      wait();
    }

   private:
    std::vector<pid_t> of_the_folder() const {
      std::vector<pid_t> found;
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const pid_t process = std::atoi(entry.path().filename().c_str());
        if (process > 0 && process != getpid() &&
            text(entry.path() / "cmdline").find(folder_.string()) != std::string::npos)
          found.push_back(process);
      }
      return found;
    }

    std::filesystem::path folder_;
    pid_t pid_ = -1;
    int status_ = 0;
    bool ended_ = false;
  };

  // Whether a signal is in a set of the process: "SigBlk:" of those it holds back, "SigCgt:" of
  // those it has a handler for.
  static bool has_signal(const Child& child, const std::string& set, int number) {
    std::istringstream lines(
        text(std::filesystem::path("/proc") / std::to_string(child.pid()) / "status"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(set))
        return (std::stoull(line.substr(set.size()), nullptr, 16) >> (number - 1)) & 1;
    }
    return false;
  }

  // The steps in metrics.jsonl, in its order.
  static std::vector<int64_t> logged_steps(const std::filesystem::path& run,
                                           const char* of = "loss") {
    std::vector<int64_t> steps;
    std::istringstream lines(text(run / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json entry = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (entry.is_object() && entry.contains(of)) steps.push_back(entry["step"].get<int64_t>());
    }
    return steps;
  }
  static std::vector<int64_t> steps_to(int64_t last) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
    return steps;
  }
  // Until so many steps are logged, or the child has ended.
  static void wait_for_steps(Child& child, const std::filesystem::path& run, size_t count) {
    while (child.runs() && logged_steps(run).size() < count)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  static std::string weight_bytes(const std::filesystem::path& exported) {
    return text(exported / "model.safetensors");
  }
  static double largest_difference(const std::filesystem::path& a, const std::filesystem::path& b) {
    const Weights one(a.string()), other(b.string());
    EXPECT_EQ(one.names(), other.names());
    double largest = 0;
    for (const std::string& name : one.names()) {
      const StoredTensor &left = *one.find(name), &right = *other.find(name);
      std::vector<float> x(static_cast<size_t>(left.elements)), y(x.size());
      EXPECT_EQ(left.elements, right.elements);
      one.read(left, 0, left.elements, x.data(), StoredType::f32);
      other.read(right, 0, right.elements, y.data(), StoredType::f32);
      for (size_t i = 0; i < x.size(); ++i)
        largest = std::max(largest, std::abs(double{x[i]} - double{y[i]}));
    }
    return largest;
  }
};

}  // namespace veil
