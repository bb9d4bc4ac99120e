#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "base/error.h"

namespace veil {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() : folder_(fs::temp_directory_path() / ("veil_files_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Files() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

TEST_F(Files, WhatIsWrittenIsReadAndReplacedWhole) {
  write_file_atomically(path("a/b.json"), "one");
  EXPECT_EQ(read_file(path("a/b.json")), "one");
  write_file_atomically(path("a/b.json"), std::string("two\0more", 8));
  EXPECT_EQ(read_file(path("a/b.json")), std::string("two\0more", 8));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a"), {}), 1)
      << "a temporary file was left";
}

TEST_F(Files, AFileForTheOwnerAloneHasThatMode) {
  write_file_atomically(path("secret"), "x", /*owner_only=*/true);
  struct stat state {};
  ASSERT_EQ(stat(path("secret").c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST_F(Files, ManyWritersOfOneFileLeaveOneWholeVersion) {
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 20; ++i) write_file_atomically(path("shared"), std::string(5000, letter));
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string content = read_file(path("shared"));
  EXPECT_EQ(content, std::string(5000, content[0]));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ReadingWhatIsNotThereIsOneLineThatNamesIt) {
  try {
    read_file(path("none"));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot read '" + path("none") + "': No such file or directory");
  }
  EXPECT_THROW(read_file(folder_.string()), UserError);
}

TEST_F(Files, AFolderThatCannotBeMadeIsAUserErrorAndLeavesNothing) {
  write_file_atomically(path("file"), "x");
  EXPECT_THROW(ensure_folder_writable(path("file/below")), UserError);
  EXPECT_THROW(ensure_folder_writable(path("file")), UserError);
  EXPECT_THROW(write_file_atomically(path("file/below.json"), "x"), UserError);
  EXPECT_THROW(ensure_folder_writable("/proc/veil"), UserError);  // refused even to root
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, WhatCannotBeMadeIsToldWithoutMakingAnything) {
  write_file_atomically(path("file"), "x");
  EXPECT_THROW(check_folder_can_be_made(path("file/below/deeper")), UserError);
  EXPECT_THROW(check_folder_can_be_made(path("file")), UserError);
  EXPECT_THROW(check_file_can_be_written(path("file/below.json")), UserError);
  EXPECT_THROW(check_file_can_be_written(folder_.string()), UserError);
  EXPECT_NO_THROW(check_folder_can_be_made(path("new/deep")));
  EXPECT_NO_THROW(check_file_can_be_written(path("new/deep.json")));
  EXPECT_NO_THROW(check_file_can_be_written("relative.json"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ProbingAFolderLeavesNothingInIt) {
  ensure_folder_writable(path("new/deep"));
  EXPECT_TRUE(fs::is_empty(folder_ / "new/deep"));
}

TEST_F(Files, AStreamIsWrittenWholeOrNotAtAll) {
  write_stream_atomically(path("a/stream"), [](const AppendBytes& append) {
    append("one ");
    append("two");
  });
  EXPECT_EQ(read_file(path("a/stream")), "one two");
  EXPECT_THROW(write_stream_atomically(path("a/stream"),
                                       [](const AppendBytes& append) {
                                         append("half");
                                         throw UserError("enough");
                                       }),
               UserError);
  EXPECT_EQ(read_file(path("a/stream")), "one two");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a"), {}), 1)
      << "a temporary file was left";
}

TEST_F(Files, APathThatIsAFolderCannotBeOverwritten) {
  fs::create_directories(folder_ / "taken");
  EXPECT_THROW(write_file_atomically(path("taken"), "x"), UserError);
  EXPECT_EQ(entries(), 1u) << "the temporary file was left";
}

}  // namespace veil
