#include "base/sha256.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "base/error.h"
#include "base/file_digest.h"
#include "data/test_folder.h"

namespace veil {
namespace {

// The examples of FIPS 180-4 and of NIST's SHAVS for whole bytes.
const std::pair<std::string, std::string> kVectors[] = {
    {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
     "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnop"
     "q"
     "rsmnopqrstnopqrstu",
     "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
    {std::string(1000000, 'a'),
     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};

TEST(Sha256Hash, IsThatOfTheStandardsExamplesWithAndWithoutTheProcessorsInstructions) {
  for (const auto& [message, digest] : kVectors) {
    EXPECT_EQ(digest_text(sha256(message)), digest) << message.substr(0, 80);
    Sha256 portable(/*portable=*/true);
    portable.add(message);
    EXPECT_EQ(digest_text(portable.digest()), digest) << message.substr(0, 80);
  }
}

TEST(Sha256Hash, IsTheSameHoweverTheBytesComeAndWhateverComputesIt) {
  std::mt19937 random(3);
  std::string bytes;
  for (int length = 0; length < 300; ++length) {
    Sha256 whole, parts(/*portable=*/true);
    whole.add(bytes);
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = 1 + random() % 90;
      parts.add(std::string_view(bytes).substr(at, count));
      at += count;
    }
    EXPECT_EQ(whole.digest(), parts.digest()) << length;
    bytes += static_cast<char>(random());
  }
}

TEST(Sha256Hash, OfPartsDependsOnEachPartOnTheirOrderAndNotOnTheThreads) {
  const auto of = [](int64_t part) { return sha256(std::to_string(part)); };
  const auto turned = [](int64_t part) { return sha256(std::to_string(6 - part)); };
  const Sha256Digest one = digest_of_parts(7, of, 1);
  EXPECT_EQ(digest_of_parts(7, of, 3), one);
  EXPECT_NE(digest_of_parts(6, of, 1), one);
  EXPECT_NE(digest_of_parts(7, turned, 1), one);
  EXPECT_NE(digest_of_parts(0, of), digest_of_parts(1, of));
  EXPECT_THROW(digest_of_parts(
                   9,
                   [](int64_t part) -> Sha256Digest {
                     if (part == 4) user_error("the fifth");
                     return {};
                   },
                   2),
               UserError);
}

TEST(Sha256Hash, OfMemorySeesEveryPiece) {
  std::string bytes((size_t{5} << 19) + 3, 'x');  // two pieces and a half
  const Sha256Digest before = digest_of_memory(bytes);
  for (const size_t place : {size_t{0}, size_t{1} << 20, bytes.size() - 1}) {
    bytes[place] = 'y';
    EXPECT_NE(digest_of_memory(bytes), before) << place;
    bytes[place] = 'x';
  }
  EXPECT_EQ(digest_of_memory(bytes), before);
}

class Sha256Files : public data::FolderTest {};

TEST_F(Sha256Files, OfOneFileDependsOnItsLengthAndEveryByte) {
  std::set<std::string> seen;
  const size_t piece = size_t{1} << 20;
  for (const size_t size : {size_t{0}, size_t{1}, piece - 1, piece, piece + 1, 2 * piece}) {
    std::string bytes(size, '\0');
    seen.insert(digest_text(digest_of_file(write("f", bytes))));
    EXPECT_EQ(digest_of_file(path("f")), digest_of_file(path("f")));
    if (size == 0) continue;
    for (const size_t place : {size_t{0}, size - 1}) {
      bytes[place] = 'x';
      const auto changed = digest_text(digest_of_file(write("f", bytes)));
      EXPECT_EQ(seen.count(changed), 0U) << size << " " << place;
      bytes[place] = '\0';
    }
  }
  EXPECT_EQ(seen.size(), 6U) << "two lengths have one digest";
  EXPECT_THROW(digest_of_file(path("nowhere")), UserError);
}

TEST_F(Sha256Files, OfAFolderDependOnNamesSizesAndEveryByte) {
  write("a", std::string(3000000, 'a'));
  write("b", "b");
  const Sha256Digest before = digest_of_files(folder_);
  EXPECT_EQ(digest_of_files(folder_), before);
  std::string other(3000000, 'a');
  other[2500000] = 'b';
  write("a", other);
  EXPECT_NE(digest_of_files(folder_), before);
  write("a", std::string(3000000, 'a'));
  EXPECT_EQ(digest_of_files(folder_), before);
  std::filesystem::rename(path("b"), path("c"));
  EXPECT_NE(digest_of_files(folder_), before);
  EXPECT_THROW(digest_of_files(path("nowhere")), UserError);
}

}  // namespace
}  // namespace veil
