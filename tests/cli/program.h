// The program itself, run in a folder of its own as a person would. For tests whose suites are
// named Program...
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_paths.h"
#include "cli/forked_program.h"

namespace veil {

class ProgramTest : public ::testing::Test {
 protected:
  using Json = nlohmann::ordered_json;
  struct Answer {
    int code = 0;
    std::string out, err;
    // How many lines of standard error there are.
    int64_t complaints() const { return std::count(err.begin(), err.end(), '\n'); }
    // The lines of standard output that are JSON objects: the stages' memory.
    std::vector<Json> objects() const {
      std::vector<Json> found;
      std::istringstream lines(out);
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with('{')) found.push_back(Json::parse(line));
      }
      return found;
    }
  };

  ProgramTest() {
    const std::string name = std::string("veil_program_") + std::to_string(getpid());
    folder_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "work");
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  // Runs `veil WORDS` in work(). `words` and `environment` are pieces of a shell's line.
  Answer veil(const std::string& words, const std::string& environment = "") const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const std::string line = "cd '" + work().string() + "' && unset VEIL_PROFILE && " +
                             environment + " OMP_NUM_THREADS=1 '" + veil_program() + "' " + words +
                             " >'" + out + "' 2>'" + err + "'";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text(out), text(err)};
  }

  // The same for command lines that are refused, of which there are hundreds: in a process forked from
  // the test, which has loaded LibTorch already. What starts processes of the program's own, or needs
  // more of a shell than its quotes, runs as above.
  Answer refused_veil(const std::string& words) const {
    const auto has = [&](const char* piece) { return words.find(piece) != std::string::npos; };
    wordexp_t pieces;
    if (has("rank") || has("nproc") || has("suite") || has("find-batch") || has("*") ||
        wordexp(words.c_str(), &pieces, WRDE_NOCMD | WRDE_UNDEF) != 0)
      return veil(words);
    const std::vector<std::string> split(pieces.we_wordv, pieces.we_wordv + pieces.we_wordc);
    wordfree(&pieces);
    unsetenv("VEIL_PROFILE");
    const ForkedAnswer answer = forked_veil(work(), folder_, split, /*deadline_s=*/300);
    return {answer.code, answer.out, answer.err};
  }

  // The record that `veil profile WORDS` writes; fails the test if it does not end well.
  Json record_of(const std::string& words, const std::string& environment = "") const {
    const Answer answer = veil("profile " + words + " --output record.json", environment);
    EXPECT_EQ(answer.code, 0) << words << "\n" << answer.err;
    return answer.code == 0 ? read(work() / "record.json") : Json::object();
  }

  static std::string text(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  }
  static Json read(const std::filesystem::path& path) { return Json::parse(text(path)); }

  std::filesystem::path work() const { return folder_ / "work"; }

 private:
  std::filesystem::path folder_;
};

}  // namespace veil
