#include "comm/job_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace veil {
namespace {

// RFC 4231, test cases 1, 2 and 6.
TEST(JobToken, TheKeyedHashIsHmacSha256) {
  EXPECT_EQ(keyed_hash(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(keyed_hash("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(keyed_hash(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(JobToken, AProofIsOfOneChallengeOneRankAndOnePort) {
  const std::string proof = join_proof("secret", "challenge", "nonce", 1, "4000");
  EXPECT_EQ(proof, join_proof("secret", "challenge", "nonce", 1, "4000"));
  EXPECT_NE(proof, join_proof("other", "challenge", "nonce", 1, "4000"));
  EXPECT_NE(proof, join_proof("secret", "challenge2", "nonce", 1, "4000"));
  EXPECT_NE(proof, join_proof("secret", "challenge", "nonce2", 1, "4000"));
  EXPECT_NE(proof, join_proof("secret", "challenge", "nonce", 2, "4000"));
  EXPECT_NE(proof, join_proof("secret", "challenge", "nonce", 1, "4001"));
  EXPECT_NE(places_proof("secret", "nonce", "a"), places_proof("secret", "nonce", "b"));
}

TEST(JobToken, SecretsAreComparedWhole) {
  EXPECT_TRUE(same_secret("abc", "abc"));
  EXPECT_FALSE(same_secret("abc", "abd"));
  EXPECT_FALSE(same_secret("abc", "bbc"));
  EXPECT_FALSE(same_secret("abc", "ab"));
  EXPECT_FALSE(same_secret("", "a"));
}

class UserKey : public ::testing::Test {
 protected:
  UserKey() { std::filesystem::remove_all(folder_); }
  ~UserKey() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("veil_key_" + std::to_string(getpid()));
  std::string file_ = (folder_ / "cache" / "job_key").string();
};

TEST_F(UserKey, IsMadeOnceForItsUserAlone) {
  const std::string key = user_key(file_);
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(user_key(file_), key);
  struct stat file {};
  ASSERT_EQ(stat(file_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "cache"),
                          std::filesystem::directory_iterator()),
            1)
      << "something was left behind";
  EXPECT_NE(user_key(file_ + "2"), key);
}

TEST_F(UserKey, AFileThatOthersCouldReadIsNotUsedAndStays) {
  std::filesystem::create_directories(folder_ / "cache");
  std::ofstream(file_) << std::string(64, 'a');
  chmod(file_.c_str(), 0644);
  EXPECT_EQ(user_key(file_), "");
  EXPECT_EQ(std::filesystem::file_size(file_), 64u);
  EXPECT_EQ(user_key(""), "");
}

}  // namespace
}  // namespace veil
