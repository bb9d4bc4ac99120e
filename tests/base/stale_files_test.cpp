#include "base/stale_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

namespace veil {
namespace {

namespace fs = std::filesystem;

class StaleFiles : public ::testing::Test {
 protected:
  StaleFiles() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    // A process that is gone.
    gone_ = fork();
    if (gone_ == 0) _exit(0);
    waitpid(gone_, nullptr, 0);
  }
  ~StaleFiles() override { fs::remove_all(folder_); }

  void make(const std::string& name, std::chrono::hours age = {}) const {
    std::ofstream(folder_ / name) << "x";
    fs::last_write_time(folder_ / name, fs::file_time_type::clock::now() - age);
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      found.insert(entry.path().filename().string());
    return found;
  }
  std::string target() const { return (folder_ / "ledger.json").string(); }

  fs::path folder_ = fs::temp_directory_path() / ("veil_stale_" + std::to_string(getpid()));
  pid_t gone_ = 0;
};

TEST_F(StaleFiles, OnlyWhatVeilNamesSoIsRemoved) {
  const std::set<std::string> others = {"ledger.json",
                                        "ledger.json.tmp",
                                        "ledger.json.12a.tmp",
                                        "ledger.json.1.2.3.tmp",
                                        "ledger.json.1..tmp",
                                        "ledger.json.1.2.tmp2",
                                        "my.ledger.json.1.0.tmp",
                                        "settings.json.1.0.tmp",
                                        "notes.tmp",
                                        "ledger.json..tmp"};
  for (const std::string& name : others) make(name);
  make("ledger.json.4000000.0.tmp");
  make("ledger.json.4000001.tmp");
  fs::create_directory(folder_ / "ledger.json.7.0.tmp");
  fs::create_symlink("ledger.json", folder_ / "ledger.json.8.0.tmp");
  EXPECT_EQ(remove_stale_temporaries(target(), OtherWriters::none), 2);
  std::set<std::string> left = others;
  left.insert({"ledger.json.7.0.tmp", "ledger.json.8.0.tmp"});
  EXPECT_EQ(names(), left);
  EXPECT_EQ(remove_stale_temporaries((folder_ / "nowhere" / "x").string(), OtherWriters::none), 0);
}

TEST_F(StaleFiles, WhatAnotherProcessMayBeWritingStays) {
  const std::string gone = std::to_string(gone_);
  make("ledger.json." + gone + ".0.tmp", std::chrono::hours(2));
  make("ledger.json." + gone + ".1.tmp");  // young
  make("ledger.json." + std::to_string(getppid()) + ".0.tmp", std::chrono::hours(2));
  make("ledger.json." + std::to_string(getpid()) + ".0.tmp", std::chrono::hours(2));
  EXPECT_EQ(remove_stale_temporaries(target(), OtherWriters::possible), 1);
  EXPECT_EQ(names().size(), 3u);
  EXPECT_EQ(names().count("ledger.json." + gone + ".0.tmp"), 0u);
}

}  // namespace
}  // namespace veil
