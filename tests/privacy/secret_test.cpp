// Invariant 10 of docs/privacy.md: secrets come from the operating system unless given, and only
// their owner reads them.
#include "privacy/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "base/error.h"
#include "base/files.h"
#include "data/test_folder.h"

namespace veil::privacy {
namespace {

using testing::HasSubstr;
using testing::Not;

RunSecret numbered() {
  RunSecret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(7 * i + 1);
  return secret;
}

std::string message_of(const std::string& path) {
  try {
    read_secret(path);
  } catch (const UserError& error) {
    EXPECT_EQ(error.exit_code(), kExitUsage);
    return error.what();
  }
  return "";
}

class SecretFile : public data::FolderTest {};

TEST(Secret, EveryDrawIsAnother) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    seen.insert(hex(draw_secret().data(), 32));
    seen.insert(hex(draw_nonce().data(), 16));
  }
  EXPECT_EQ(seen.size(), 200u);
}

TEST_F(SecretFile, IsWrittenForItsOwnerAloneAndReadBack) {
  const std::string file = path("secret");
  write_secret(file, numbered());
  struct stat facts {};
  ASSERT_EQ(stat(file.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_EQ(read_secret(file), numbered());
}

TEST_F(SecretFile, MayBeGivenAsBytesOrAsDigits) {
  const RunSecret secret = numbered();
  const std::string file = path("given");
  write_file_atomically(file, std::string(secret.begin(), secret.end()), /*owner_only=*/true);
  EXPECT_EQ(read_secret(file), secret);
  std::string digits = hex(secret.data(), secret.size());
  for (char& c : digits) c = static_cast<char>(std::toupper(c));
  write_file_atomically(file, "  " + digits + "\r\n", /*owner_only=*/true);
  EXPECT_EQ(read_secret(file), secret);
}

TEST_F(SecretFile, WhatIsNoneOrIsOpenToOthersIsRefusedWithoutBeingShown) {
  const std::string file = path("given"), digits = hex(numbered().data(), 32);
  EXPECT_THAT(message_of(path("nowhere")), HasSubstr("cannot read"));
  std::string no_digit = digits;
  no_digit[5] = 'x';
  const std::vector<std::string> wrongs = {"", "password", digits + "0", digits.substr(1), no_digit,
                                           // half of them, which has the length of 32 bytes
                                           digits.substr(0, 32), digits.substr(0, 31) + "\n"};
  for (const std::string& wrong : wrongs) {
    write_file_atomically(file, wrong, /*owner_only=*/true);
    EXPECT_THAT(message_of(file), HasSubstr("64 hexadecimal digits")) << wrong;
    EXPECT_TRUE(wrong.empty() || message_of(file).find(wrong) == std::string::npos) << wrong;
  }
  write_file_atomically(file, digits, /*owner_only=*/true);
  for (const mode_t open : {0640u, 0604u, 0660u, 0644u, 0610u}) {
    ASSERT_EQ(chmod(file.c_str(), open), 0);
    EXPECT_THAT(message_of(file), HasSubstr("chmod 600"));
    EXPECT_THAT(message_of(file), Not(HasSubstr(digits)));
  }
}

TEST(SecretTag, DependsOnSecretPurposePiecesAndTheirOrder) {
  RunSecret other = numbered();
  other[31] ^= 1;
  std::set<std::string> seen;
  int made = 0;
  const auto take = [&](SecretTag tag) {
    seen.insert(hex(tag.value().data(), 16));
    ++made;
  };
  const auto with = [&](const RunSecret& secret, const char* purpose,
                        std::initializer_list<std::string> pieces) {
    SecretTag tag(secret, purpose);
    for (const std::string& piece : pieces) tag.add(piece);
    return tag;
  };
  take(with(numbered(), "a", {}));
  take(with(numbered(), "b", {}));
  take(with(other, "a", {}));
  take(with(numbered(), "a", {""}));
  take(with(numbered(), "a", {"x"}));
  take(with(numbered(), "a", {"x", "y"}));
  take(with(numbered(), "a", {"y", "x"}));
  take(with(numbered(), "a", {"xy"}));
  take(with(numbered(), "a", {"x", "", "y"}));
  take(with(numbered(), "a", {std::string(16, '\0')}));
  take(with(numbered(), "a", {std::string(17, '\0')}));
  SecretTag one(numbered(), "a"), two(numbered(), "a");
  one.add(uint64_t{1});
  two.add(uint64_t{1} << 32);
  take(one);
  take(two);
  EXPECT_EQ(static_cast<int>(seen.size()), made);
  EXPECT_EQ(with(numbered(), "a", {"x", "y"}).value(), with(numbered(), "a", {"x", "y"}).value());
}

TEST(SecretTag, AFingerprintTellsSecretsApartAndIsNoPartOfThem) {
  RunSecret other = numbered();
  other[0] ^= 1;
  EXPECT_NE(fingerprint(numbered()), fingerprint(other));
  EXPECT_EQ(fingerprint(numbered()).size(), 16u);
  EXPECT_EQ(hex(numbered().data(), 32).find(fingerprint(numbered())), std::string::npos);
}

}  // namespace
}  // namespace veil::privacy
