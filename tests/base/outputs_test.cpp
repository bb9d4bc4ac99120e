#include "base/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Outputs : public ::testing::Test {
 protected:
  Outputs() : folder_(fs::temp_directory_path() / ("veil_outputs_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Outputs() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  template <typename Work>
  static std::string refusal(Work work) {
    try {
      work();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(Outputs, AForeignFileIsRefusedUnlessOverwriteIsGiven) {
  write_file_atomically(path("notes.txt"), "mine");
  EXPECT_THAT(refusal([&] { check_output_file(path("notes.txt")); }), HasSubstr("notes.txt"));
  EXPECT_THAT(refusal([&] { write_listed_file(path("notes.txt"), "x"); }), HasSubstr("overwrite"));
  EXPECT_EQ(read_file(path("notes.txt")), "mine");
  check_output_file(path("notes.txt"), /*overwrite=*/true);
  check_output_file(path("new.txt"));
}

TEST_F(Outputs, JsonThatNamesVeilIsKnownAndOtherJsonIsNot) {
  const std::pair<const char*, bool> cases[] = {
      {R"({"written_by": "veil", "a": 1})", true},
      {R"({"schema": 1, "command": "veil profile --json"})", true},
      {R"({"command": "other profile"})", false},
      {R"({"written_by": 3})", false},
      {R"(["veil"])", false},
      {R"({"written_by": "veil")", false},  // half a file
      {"written_by: veil", false},
      {"", false}};
  for (const auto& [text, known] : cases) {
    write_file_atomically(path("a.json"), text);
    EXPECT_EQ(written_by_veil(path("a.json")), known) << text;
  }
  EXPECT_FALSE(written_by_veil(path("missing.json")));
  EXPECT_FALSE(written_by_veil(folder_.string()));
}

TEST_F(Outputs, AListedFileIsReplacedUntilSomebodyEditsIt) {
  write_listed_file(path("summary.csv"), "a,b\n");
  write_listed_file(path("summary.csv"), "a,b,c\n");
  EXPECT_EQ(read_file(path("summary.csv")), "a,b,c\n");
  write_file_atomically(path("summary.csv"), "a,b,X\n");
  EXPECT_THAT(refusal([&] { write_listed_file(path("summary.csv"), "a\n"); }),
              HasSubstr("changed since"));
  EXPECT_EQ(read_file(path("summary.csv")), "a,b,X\n");
  write_listed_file(path("summary.csv"), "a\n", /*overwrite=*/true);
  EXPECT_TRUE(written_by_veil(path("summary.csv")));
}

TEST_F(Outputs, AFileThatAnotherProgramWritesIsKnownFromTheBegin) {
  check_output_file(path("plot.svg"));
  expect_output_file(path("plot.svg"));
  write_file_atomically(path("plot.svg"), "half");  // the process is killed here
  EXPECT_TRUE(written_by_veil(path("plot.svg")));
  write_file_atomically(path("plot.svg"), "whole");
  list_output_file(path("plot.svg"));
  EXPECT_TRUE(written_by_veil(path("plot.svg")));
  write_file_atomically(path("plot.svg"), "edited");
  EXPECT_FALSE(written_by_veil(path("plot.svg")));
}

TEST_F(Outputs, AForeignManifestIsNotReplaced) {
  write_file_atomically(path(kManifestFile), "mine");
  EXPECT_THAT(refusal([&] { write_listed_file(path("a.txt"), "x"); }), HasSubstr(kManifestFile));
  EXPECT_EQ(read_file(path(kManifestFile)), "mine");
}

TEST_F(Outputs, WhatIsNoRegularFileIsRefusedAlsoWithOverwrite) {
  fs::create_directories(path("folder"));
  EXPECT_THAT(refusal([&] { check_output_file(path("folder"), true); }), HasSubstr("is a folder"));
  EXPECT_THAT(refusal([&] { check_output_file("/dev/null", true); }),
              HasSubstr("not a regular file"));
  fs::create_symlink("nowhere", path("link"));
  EXPECT_THAT(refusal([&] { check_output_file(path("link")); }), HasSubstr("overwrite"));
}

TEST_F(Outputs, AnExpectedFileIsVeilsWhileItIsDrawnAndNotIfItNeverCame) {
  expect_output_file(path("picture.png"));
  write_file_atomically(path("picture.png"), "half of it");
  EXPECT_TRUE(written_by_veil(path("picture.png")));
  list_output_file(path("picture.png"));
  EXPECT_TRUE(written_by_veil(path("picture.png")));
  expect_output_file(path("other.png"));
  list_output_file(path("other.png"));
  write_file_atomically(path("other.png"), "mine");
  EXPECT_FALSE(written_by_veil(path("other.png")));
  EXPECT_TRUE(written_by_veil(path("picture.png")));
}

TEST_F(Outputs, AFolderIsClaimedWhenItIsEmptyOrVeilsOwn) {
  claim_output_folder(path("new"));
  write_file_atomically(path("new/a.txt"), "x");
  claim_output_folder(path("new"));
  write_file_atomically(path("mine/a.txt"), "x");
  EXPECT_THAT(refusal([&] { claim_output_folder(path("mine")); }), HasSubstr("mine"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("mine")), {}), 1);
}

TEST_F(Outputs, FoldersThatTouchEachOtherAreNamed) {
  fs::create_directories(path("data/part"));
  fs::create_directories(path("database"));
  fs::create_directory_symlink(path("data"), path("alias"));
  const auto against_data = [&](const std::string& folder) {
    return refusal([&] { check_apart("export", path(folder), {{path("data"), "the data"}}); });
  };
  EXPECT_THAT(against_data("data"), HasSubstr("is the data"));
  EXPECT_THAT(against_data("data/"), HasSubstr("is the data"));
  EXPECT_THAT(against_data("alias"), HasSubstr("is the data"));
  EXPECT_THAT(against_data("."), HasSubstr("contains the data"));
  EXPECT_THAT(against_data("data/part/model"), HasSubstr("is inside the data"));
  EXPECT_THAT(against_data("alias/new"), HasSubstr("is inside the data"));
  EXPECT_EQ(against_data("database"), "");
  EXPECT_EQ(against_data("model"), "");
  check_apart("export", path("data"), {{"", "the model"}});
}

}  // namespace
}  // namespace veil
