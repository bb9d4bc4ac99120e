// The program against a hub on this machine. The token must be found nowhere afterwards.
#include <gmock/gmock.h>

#include "cli/program.h"
#include "data/http.h"
#include "data/test_hub_server.h"

namespace veil {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr const char* kToken = "hf_veryhush";

class ProgramFetch : public ProgramTest {
 protected:
  void SetUp() override {
    if (!built_with_http()) GTEST_SKIP() << "without libcurl and OpenSSL";
    hub_.emplace();
    hub_->token = kToken;
    hub_->add("config.json", "{}\n", false);
    hub_->add("model.safetensors", std::string(5000, 'w'), true);
  }
  std::string environment(const std::string& more = "") const {
    return "env -u HF_TOKEN -u HF_HUB_CACHE -u HF_TOKEN_PATH no_proxy=127.0.0.1 HF_ENDPOINT=" +
           hub_->endpoint() + " HF_HOME=home " + more;
  }
  std::string snapshot() const { return "home/hub/models--org--tiny/snapshots/" + hub_->commit; }
  void expect_token_nowhere(const Answer& answer, const fs::path& besides = {}) const {
    EXPECT_THAT(answer.out, Not(HasSubstr(kToken)));
    EXPECT_THAT(answer.err, Not(HasSubstr(kToken)));
    for (const auto& entry : fs::recursive_directory_iterator(work())) {
      if (!entry.is_regular_file() || entry.path() == besides) continue;
      EXPECT_THAT(text(entry.path()), Not(HasSubstr(kToken))) << entry.path();
    }
  }
  std::optional<TestHubServer> hub_;
};

TEST_F(ProgramFetch, ATokenOnTheCommandLineIsHiddenInTheRecord) {
  const Answer answer =
      veil(std::string("fetch org/tiny --json record.json --token ") + kToken, environment());
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(text(work() / snapshot() / "model.safetensors"), std::string(5000, 'w'));
  EXPECT_THAT(answer.out, AllOf(HasSubstr("model.safetensors"), HasSubstr("downloaded"),
                                HasSubstr(snapshot())));
  const Json record = read(work() / "record.json");
  EXPECT_EQ(record["command"].get<std::string>(),
            "veil fetch org/tiny --json record.json --token ***");
  EXPECT_EQ(record["commit"].get<std::string>(), hub_->commit);
  EXPECT_EQ(record["files"].size(), 2u);
  EXPECT_EQ(record["files"][1]["state"].get<std::string>(), "downloaded");
  EXPECT_EQ(record["files"][1]["received_bytes"].get<int>(), 5000);
  expect_token_nowhere(answer);
}

TEST_F(ProgramFetch, TheTokenComesFromTheEnvironmentOrFromTheFileOfTheLogin) {
  Answer answer = veil("fetch org/tiny --dry-run", environment());
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.complaints(), 1);
  EXPECT_THAT(answer.err, HasSubstr("no token was given"));
  answer = veil("fetch org/tiny --json", environment(std::string("HF_TOKEN=") + kToken));
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(Json::parse(answer.out)["folder"].get<std::string>(), snapshot());
  expect_token_nowhere(answer);
  fs::remove_all(work() / "home");
  fs::create_directories(work() / "home");
  std::ofstream(work() / "home/token") << kToken << "\n";
  answer = veil("fetch org/tiny", environment());
  EXPECT_EQ(answer.code, 0) << answer.err;
  expect_token_nowhere(answer, work() / "home/token");
}

TEST_F(ProgramFetch, AWrongTokenIsNotRepeatedInWhatIsSaid) {
  hub_->token = "another";
  const Answer answer = veil(std::string("fetch org/tiny --token=") + kToken, environment());
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.complaints(), 1);
  EXPECT_THAT(answer.err, HasSubstr("the token is not accepted"));
  expect_token_nowhere(answer);
}

TEST_F(ProgramFetch, WrongUsageIsOneLine) {
  for (const char* words :
       {"fetch", "fetch ../x", "fetch a/b/c", "fetch org/tiny --endpoint nonsense",
        "fetch org/tiny --revision ../x"}) {
    const Answer answer = veil(words, environment(std::string("HF_TOKEN=") + kToken));
    EXPECT_EQ(answer.code, 2) << words << answer.err;
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_FALSE(fs::exists(work() / "home"));
  }
}

TEST_F(ProgramFetch, AnotherCacheIsTakenWhereItIsGiven) {
  const Answer answer =
      veil("fetch org/tiny --cache-dir elsewhere", environment(std::string("HF_TOKEN=") + kToken));
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(fs::exists(work() / "elsewhere/models--org--tiny/refs/main"));
  EXPECT_FALSE(fs::exists(work() / "home"));
}

}  // namespace
}  // namespace veil
