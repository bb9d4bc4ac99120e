#include "data/byte_source.h"

#include <gmock/gmock.h>

#include "data/corpus.h"
#include "data/test_folder.h"

namespace veil::data {
namespace {

using ::testing::HasSubstr;

// 20,000 lines of {"text": "hello world"}, more than one buffer, as `gzip -9` and `zstd -19` pack
// them, and "one\n" and "two" packed apart and joined.
const char* const kManyGzip =
    "1f8b0800000000000203edc8b109c0201000c03e53c88fe13c11523c08413020d9dd29eceeca5b31da37a29678"
    "5a662fb3bf79c77f2defbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7befbdf7de7bef"
    "bd3ffc1b51a40adf00530700";
const char* const kManyZstd =
    "28b52ffd0468040100c07b2274657874223a202268656c6c6f20776f726c64227d0a010094ff6f3ec744000000"
    "0100fdff9b4f20440000000100fdff390002450000000100fd52390002e8a8a8be";
const char* const kTwoGzip =
    "1f8b0800000000000203cbcf4be502009fa817f8040000001f8b08000000000002032b29cf0700668aca110300"
    "0000";
const char* const kTwoZstd = "28b52ffd04582100006f6e650adf16680928b52ffd045819000074776f8b44f4ec";

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  return bytes;
}

struct Packing {
  const char *ending, *many, *two;
  bool built;
};
std::vector<Packing> packings() {
  return {{".gz", kManyGzip, kTwoGzip, built_with_zlib()},
          {".zst", kManyZstd, kTwoZstd, built_with_zstd()}};
}

using ByteSourceTest = FolderTest;

TEST_F(ByteSourceTest, PackedFilesAreReadAsIfTheyWereNot) {
  for (const Packing& packing : packings()) {
    if (!packing.built) continue;
    SCOPED_TRACE(packing.ending);
    const std::string many = bytes_of_hex(packing.many);
    const std::string file = write(std::string("many.jsonl") + packing.ending, many);
    LineReader lines(open_bytes(file));
    int64_t count = 0;
    for (std::string line; lines.next(line); ++count)
      ASSERT_EQ(line, "{\"text\": \"hello world\"}");
    EXPECT_EQ(count, 20000);
    EXPECT_EQ(lines.file_bytes_read(), std::ssize(many));
    Corpus corpus(file, {});
    count = 0;
    while (const auto document = corpus.next()) count += document->text == "hello world";
    EXPECT_EQ(count, 20000);
    EXPECT_EQ(corpus.read_bytes(), corpus.file_bytes());

    const auto two =
        open_bytes(write(std::string("two.txt") + packing.ending, bytes_of_hex(packing.two)));
    EXPECT_EQ(read_all(*two), "one\ntwo");
  }
}

TEST_F(ByteSourceTest, ADamagedPackedFileIsOneLine) {
  for (const Packing& packing : packings()) {
    SCOPED_TRACE(packing.ending);
    std::string bytes = bytes_of_hex(packing.many);
    const std::string name = std::string("a.jsonl") + packing.ending;
    const auto complaint_about = [&](const std::string& content) {
      write(name, content);
      return complaint([&] { read_all(*open_bytes(path(name))); });
    };
    if (!packing.built) continue;
    EXPECT_THAT(complaint_about(bytes.substr(0, bytes.size() / 2)), HasSubstr("cut short"));
    EXPECT_THAT(complaint_about("plain text"), HasSubstr("is no whole"));
    EXPECT_THAT(complaint_about(""), HasSubstr("cut short"));
  }
}

TEST_F(ByteSourceTest, ABuildWithoutALibrarySaysSo) {
  for (const Packing& packing : packings()) {
    if (packing.built) continue;
    EXPECT_THROW(open_bytes(write(std::string("a.txt") + packing.ending, "")), MissingBackend);
  }
  if (built_with_zlib() && built_with_zstd()) GTEST_SKIP() << "this build has zlib and zstd";
}

}  // namespace
}  // namespace veil::data
