// A folder of data that goes with the test, and complaints as text.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/files.h"

namespace veil::data {

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() : folder_(::testing::TempDir() + "veil_data_test_" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) const {
    write_file_atomically(path(name), content);
    return path(name);
  }
  std::string path(const std::string& name) const { return join_path(folder_, name); }

  std::string folder_;
};

// What `work` complains of: one line, exit code 2.
template <typename Work>
std::string complaint(Work work) {
  try {
    work();
  } catch (const UserError& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing is wrong";
}

}  // namespace veil::data
