#include "profile/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files.h"

namespace veil {

namespace {

template <typename Number>
Number take(std::string_view& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

// The frames' contents, each checked against its checksums.
std::vector<std::string> read_frames(const std::string& path) {
  const std::string content = read_file(path);
  std::string_view rest = content;
  std::vector<std::string> frames;
  while (!rest.empty()) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<uint64_t>(rest);
    EXPECT_EQ(take<uint32_t>(rest), masked_crc32c(length_bytes));
    frames.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(rest), masked_crc32c(frames.back()));
  }
  return frames;
}

}  // namespace

TEST(TensorBoard, ChecksumsAgreeWithKnownVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(masked_crc32c("123456789"), ((0xE3069283u >> 15) | (0xE3069283u << 17)) + 0xA282EAD8u);
}

TEST(TensorBoard, AnEventFileHoldsItsVersionAndOneFrameAScalar) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("veil_tb_" + std::to_string(getpid()));
  ScalarLog log(folder.string());
  log.add("loss", 0.5, 300);
  const std::vector<std::string> frames = read_frames(log.path());
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].substr(9), std::string("\x1A\x0D") + "brain.Event:2");
  // wall_time; step 300 as a varint; summary { value { tag "loss", simple_value 0.5f } }
  EXPECT_EQ(frames[1][0], '\x09');
  EXPECT_EQ(frames[1].substr(9),
            std::string("\x10\xAC\x02\x2A\x0D\x0A\x0B\x0A\x04loss\x15\0\0\0\x3F", 18));
  std::filesystem::remove_all(folder);
}

TEST(TensorBoard, TwoLogsInOneFolderDoNotShareAFile) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("veil_tb2_" + std::to_string(getpid()));
  const ScalarLog first(folder.string()), second(folder.string());
  EXPECT_NE(first.path(), second.path());
  std::filesystem::remove_all(folder);
}

TEST(TensorBoard, AFolderThatCannotBeWrittenIsAUserError) {
  EXPECT_THROW(ScalarLog("/proc/veil"), UserError);
}

}  // namespace veil
