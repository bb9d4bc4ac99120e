// Fetching from a hub of the project's own, on this machine: whole, cut off, forged, gated.
#include "data/hub_fetch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "data/http.h"
#include "data/hub.h"
#include "data/test_hub_server.h"
#include "data/test_tls_server.h"
#include "models/test_weight_files.h"

namespace veil {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// Content with no period that a wrong offset could hide behind.
std::string content_of(size_t length) {
  std::string result;
  uint64_t state = length;
  while (result.size() < length) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    result += static_cast<char>(state >> 56);
  }
  return result;
}

class HubFetch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_http()) GTEST_SKIP() << "without libcurl and OpenSSL";
    setenv("no_proxy", "127.0.0.1", 1);
    hub_.emplace();
    hub_->add("config.json", "{\"model_type\": \"llama\"}\n", false);
    hub_->add("tokenizer.json", content_of(3000), false);
    hub_->add("model.safetensors", content_of(200'000), true);
    hub_->add("pytorch_model.bin", "pickle", true);
    hub_->add("README.md", "words", false);
    request_ = {.model = "org/tiny",
                .endpoint = hub_->endpoint(),
                .cache_root = files_.path("cache"),
                .token = "",
                .first_wait_ms = 1};
  }

  FetchedModel fetch() {
    notes_.clear();
    return fetch_model(request_, [&](const FetchProgress& now) {
      if (!now.note.empty()) notes_.push_back(now.note);
      EXPECT_LE(now.done_bytes, now.total_bytes);
      last_ = now;
    });
  }
  // The one line of a fetch that fails, and its exit code.
  std::pair<std::string, int> failure() {
    try {
      fetch();
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return {error.what(), error.exit_code()};
    }
    ADD_FAILURE() << "the fetch did not fail";
    return {};
  }
  // Of one that asks this server, with a token.
  std::pair<std::string, int> failure_at(const TestTlsServer& server) {
    request_.endpoint = server.address();
    request_.token = "hf_secret";
    request_.attempts = 1;
    request_.slow_s = 2;
    return failure();
  }
  std::string folder() const { return files_.path("cache/models--org--tiny"); }
  std::string partial() const {
    return folder() + "/blobs/" + hub_->checksum("model.safetensors") + ".incomplete";
  }
  // What must hold after any failure: nothing resolves, no blob under a checksum is wrong.
  void expect_nothing_believed() {
    EXPECT_FALSE(fs::exists(folder() + "/snapshots"));
    EXPECT_FALSE(fs::exists(folder() + "/refs"));
    EXPECT_FALSE(fs::exists(folder() + "/blobs/" + hub_->checksum("model.safetensors")));
    EXPECT_FALSE(resolve_model_folder("org/tiny", request_.cache_root));
  }
  void expect_whole(const FetchedModel& model) {
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
      EXPECT_EQ(read_file(model.folder + "/" + name), hub_->content(name)) << name;
    EXPECT_FALSE(fs::exists(partial()));
  }

  WeightFiles files_;
  std::optional<TestHubServer> hub_;
  FetchRequest request_;
  std::vector<std::string> notes_;
  FetchProgress last_;
};

TEST_F(HubFetch, AModelIsLaidOutAsTheHubsOwnToolsDoIt) {
  const FetchedModel model = fetch();
  EXPECT_EQ(model.commit, hub_->commit);
  EXPECT_EQ(model.folder, folder() + "/snapshots/" + hub_->commit);
  expect_whole(model);
  EXPECT_EQ(read_file(folder() + "/refs/main"), hub_->commit);
  EXPECT_EQ(fs::read_symlink(model.folder + "/model.safetensors"),
            "../../blobs/" + hub_->checksum("model.safetensors"));
  EXPECT_EQ(fs::read_symlink(model.folder + "/config.json"),
            "../../blobs/" + hub_->checksum("config.json"));
  EXPECT_FALSE(fs::exists(model.folder + "/pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(model.folder + "/README.md"));
  EXPECT_EQ(resolve_model_folder("org/tiny", request_.cache_root), model.folder);
  EXPECT_EQ(last_.done_bytes, last_.total_bytes);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(HubFetch, ASecondFetchDownloadsNothing) {
  fetch();
  hub_->hub().forget_requests();
  hub_->store().forget_requests();
  const FetchedModel model = fetch();
  for (const FetchedFile& file : model.files) {
    EXPECT_EQ(file.state, FileState::cached) << file.name;
    EXPECT_EQ(file.received_bytes, 0);
  }
  EXPECT_EQ(hub_->hub().requests().size(), 1u) << "the listing alone";
  EXPECT_TRUE(hub_->store().requests().empty());
  expect_whole(model);
}

TEST_F(HubFetch, EveryFileIsFetchedWhereAllAreAskedFor) {
  hub_->add("original/deep/params.json", "{}", false);
  request_.all = true;
  const FetchedModel model = fetch();
  EXPECT_EQ(read_file(model.folder + "/pytorch_model.bin"), "pickle");
  EXPECT_EQ(read_file(model.folder + "/original/deep/params.json"), "{}");
  EXPECT_EQ(model.files.size(), 6u);
}

TEST_F(HubFetch, ACutConnectionIsContinuedWhereItEnded) {
  hub_->cuts["model.safetensors"] = {70'000, 50'000};
  const FetchedModel model = fetch();
  expect_whole(model);
  EXPECT_EQ(hub_->downloads("model.safetensors"), 3);
  std::vector<std::string> ranges;
  for (const auto& request : hub_->store().requests())
    ranges.push_back(request.headers.contains("range") ? request.headers.at("range") : "whole");
  EXPECT_THAT(ranges, ElementsAre("whole", "bytes=70000-", "bytes=120000-"));
  EXPECT_EQ(notes_.size(), 2u);
}

TEST_F(HubFetch, ALaterFetchContinuesWhatAnEarlierOneLeft) {
  request_.attempts = 1;
  hub_->cuts["model.safetensors"] = {70'000};
  const auto [line, code] = failure();
  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(line,
              AllOf(HasSubstr("model.safetensors"), HasSubstr("continues where this one stopped")));
  EXPECT_EQ(fs::file_size(partial()), 70'000u);
  expect_nothing_believed();
  const FetchedModel model = fetch();
  expect_whole(model);
  for (const FetchedFile& file : model.files) {
    if (file.name != "model.safetensors") continue;
    EXPECT_EQ(file.state, FileState::resumed);
    EXPECT_EQ(file.received_bytes, 130'000);
  }
}

TEST_F(HubFetch, AServerThatKnowsNoRangesIsAskedForTheWhole) {
  hub_->ranges = false;
  hub_->cuts["model.safetensors"] = {70'000};
  expect_whole(fetch());
}

TEST_F(HubFetch, AFalseBeginningIsFoundOutAndFetchedAgain) {
  write_file_atomically(partial(), std::string(60'000, 'x'));
  expect_whole(fetch());
  EXPECT_EQ(hub_->downloads("model.safetensors"), 2);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("from the start")));
}

TEST_F(HubFetch, ABeginningThatIsTooLongOrAlreadyWholeIsHandled) {
  write_file_atomically(partial(), std::string(300'000, 'x'));
  expect_whole(fetch());
  fs::remove_all(folder());
  write_file_atomically(partial(), hub_->content("model.safetensors"));
  hub_->store().forget_requests();
  expect_whole(fetch());
  EXPECT_EQ(hub_->downloads("model.safetensors"), 0);
}

TEST_F(HubFetch, ConnectionsThatAreCutForeverEndTheFetch) {
  hub_->cuts["model.safetensors"] = std::deque<int64_t>(50, 10);
  const auto [line, code] = failure();
  EXPECT_EQ(code, kExitFailed);
  EXPECT_EQ(hub_->downloads("model.safetensors"), request_.attempts);
  expect_nothing_believed();
}

TEST_F(HubFetch, AWrongChecksumLeavesNothing) {
  std::string forged = hub_->content("model.safetensors");
  forged[123'456] ^= 1;
  hub_->instead["model.safetensors"] = forged;
  const auto [line, code] = failure();
  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(line,
              AllOf(HasSubstr("model.safetensors of org/tiny came wrong"), HasSubstr("checksum")));
  expect_nothing_believed();
  EXPECT_FALSE(fs::exists(partial()));
  hub_->instead.clear();
  expect_whole(fetch());
}

TEST_F(HubFetch, AWrongChecksumOfASmallFileLeavesNothing) {
  hub_->instead["config.json"] = "{\"model_type\": \"lxama\"}\n";
  EXPECT_THAT(failure().first, AllOf(HasSubstr("config.json"), HasSubstr("checksum")));
  expect_nothing_believed();
  EXPECT_FALSE(fs::exists(folder() + "/blobs/" + hub_->checksum("config.json")));
}

TEST_F(HubFetch, AWrongLengthLeavesNothing) {
  hub_->instead["model.safetensors"] = hub_->content("model.safetensors") + "more";
  EXPECT_THAT(failure().first, HasSubstr("longer than the hub says"));
  EXPECT_FALSE(fs::exists(partial()));
  hub_->instead["model.safetensors"] = hub_->content("model.safetensors").substr(0, 100);
  EXPECT_THAT(failure().first, HasSubstr("it has 100 bytes"));
  EXPECT_FALSE(fs::exists(partial()));
  expect_nothing_believed();
}

TEST_F(HubFetch, AHubThatGivesNoChecksumOrNoLengthIsRefused) {
  hub_->headers_besides["model.safetensors"] = "X-Linked-ETag: \"../../evil\"";
  EXPECT_THAT(failure().first, HasSubstr("gives no checksum"));
  hub_->headers_besides["model.safetensors"] = "X-Linked-Size: -5";
  EXPECT_THAT(failure().first, HasSubstr("does not say how long"));
  hub_->headers_besides["model.safetensors"] = "X-Linked-Size: 9000000000000000000";
  const auto [line, code] = failure();
  EXPECT_THAT(line, HasSubstr("choose another cache folder"));
  EXPECT_EQ(code, kExitUsage);
  expect_nothing_believed();
}

TEST_F(HubFetch, NamesThatLeadOutOfTheFolderAreRefused) {
  for (const char* name : {"../../../evil.safetensors", "/etc/evil.safetensors",
                           "a/../../evil.safetensors", "a\\b.safetensors"}) {
    hub_->listed_besides = {name};
    EXPECT_THAT(failure().first, HasSubstr("leads out of the model's folder")) << name;
  }
  hub_->listed_besides.clear();
  hub_->commit = "../../evil";
  EXPECT_THAT(failure().first, HasSubstr("commit"));
  EXPECT_FALSE(fs::exists(request_.cache_root));
}

// Where a redirect leads, a file of this machine must not be read in its place.
TEST_F(HubFetch, ARedirectToAFileOrAnotherProtocolIsRefused) {
  write_file_atomically(files_.path("secret.txt"), "a file of this machine");
  const TestAnswer honest = {
      .status = 302,
      .headers = {{"X-Linked-ETag", "\"" + hub_->checksum("model.safetensors") + "\""},
                  {"X-Linked-Size", "200000"}}};
  for (const std::string& place :
       {"file://" + files_.path("secret.txt"), std::string("file:///etc/passwd"),
        std::string("gopher://127.0.0.1/x"), std::string("ftp://127.0.0.1/x"),
        std::string("http://user:password@127.0.0.1/x"), std::string("")}) {
    TestAnswer answer = honest;
    answer.headers["Location"] = place;
    hub_->hostile["model.safetensors"] = answer;
    EXPECT_THAT(failure().first, HasSubstr("the hub points nowhere")) << place;
    expect_nothing_believed();
    hub_->hostile.clear();
    hub_->hostile["listing"] = {.status = 302, .headers = {{"Location", place}}};
    EXPECT_THAT(failure().first, HasSubstr("points to another host")) << place;
    hub_->hostile.clear();
  }
  hub_->hostile["listing"] = {.status = 302,
                              .headers = {{"Location", "/api/models/org/tiny/revision/main"}}};
  EXPECT_THAT(failure().first, HasSubstr("the hub answers 302")) << "round and round";
  expect_nothing_believed();
}

TEST_F(HubFetch, ABodyWithoutEndIsBrokenOff) {
  const std::string much(size_t{1} << 20, ' ');
  const TestAnswer endless = {.body = much, .claimed_length = int64_t{1} << 50, .endless = true};
  hub_->hostile["listing"] = endless;
  EXPECT_THAT(failure().first, HasSubstr("the answer is too large"));
  hub_->hostile.clear();
  hub_->hostile["bytes of model.safetensors"] = endless;
  EXPECT_THAT(failure().first, HasSubstr("longer than the hub says"));
  expect_nothing_believed();
  EXPECT_FALSE(fs::exists(partial()));
  EXPECT_FALSE(fs::exists(files_.path("cache/models--org--tiny/blobs/") +
                          hub_->checksum("model.safetensors")));
}

// A byte now and then would otherwise keep a fetch alive for years.
TEST_F(HubFetch, ABodyThatDripsIsABrokenConnection) {
  request_.slow_s = 1;
  request_.attempts = 2;
  hub_->hostile["bytes of model.safetensors"] = {.body = hub_->content("model.safetensors"),
                                                 .drip_ms = 200};
  const auto [line, code] = failure();
  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(line, AllOf(HasSubstr("model.safetensors"), HasSubstr("continues where this one")));
  EXPECT_EQ(notes_.size(), 1u);
  expect_nothing_believed();
  hub_->hostile.clear();
  expect_whole(fetch());
}

// Nobody vouches for a certificate that a test has made, whichever host it names.
TEST_F(HubFetch, ACertificateThatNobodyVouchesForIsRefusedBeforeTheTokenIsSent) {
  for (const char* host : {"127.0.0.1", "huggingface.co"}) {
    SCOPED_TRACE(host);
    TestTlsServer server(host);
    if (!server.runs()) GTEST_SKIP() << "the program openssl is not here";
    const auto [line, code] = failure_at(server);
    EXPECT_EQ(code, kExitFailed);
    EXPECT_THAT(line, AllOf(HasSubstr("cannot list org/tiny"), HasSubstr("ertificate")));
    EXPECT_THAT(server.heard(), Not(HasSubstr("hf_secret")));
    EXPECT_FALSE(fs::exists(request_.cache_root));
  }
}

// A trusted authority vouches for both, and one of them names another host. The server of the other one
// hears the request, which it never answers.
TEST_F(HubFetch, ACertificateOfAnotherHostIsRefusedBeforeTheTokenIsSent) {
  for (const char* host : {"127.0.0.1", "huggingface.co"}) {
    SCOPED_TRACE(host);
    TestTlsServer server(host);
    if (!server.runs()) GTEST_SKIP() << "the program openssl is not here";
    request_.authorities = server.certificate();
    const auto [line, code] = failure_at(server);
    EXPECT_EQ(code, kExitFailed);
    const bool right = host == std::string("127.0.0.1");
    EXPECT_EQ(line.find("ertificate") == std::string::npos, right) << line;
    EXPECT_EQ(server.heard().find("hf_secret") != std::string::npos, right);
    EXPECT_FALSE(fs::exists(request_.cache_root));
  }
}

TEST_F(HubFetch, AGatedModelSaysHowToGetAccess) {
  hub_->gated = true;
  auto [line, code] = failure();
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(line, AllOf(HasSubstr("gated"),
                          HasSubstr("ask for access at " + hub_->endpoint() + "/org/tiny"),
                          HasSubstr("HF_TOKEN"), HasSubstr("settings/tokens")));
  request_.token = "hf_secret";
  std::tie(line, code) = failure();
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(line, AllOf(HasSubstr("403"), HasSubstr("gated"), HasSubstr("account that has it"),
                          Not(HasSubstr("hf_secret"))));
}

TEST_F(HubFetch, ATokenThatIsMissingOrWrongIsAskedFor) {
  hub_->token = "hf_right";
  auto [line, code] = failure();
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(line,
              AllOf(HasSubstr("401"), HasSubstr("no token was given"), HasSubstr("HF_TOKEN")));
  request_.token = "hf_wrong";
  EXPECT_THAT(failure().first,
              AllOf(HasSubstr("the token is not accepted"), Not(HasSubstr("hf_wrong"))));
  request_.token = "hf_right\nX-Evil: 1";
  EXPECT_THAT(failure().first, AllOf(HasSubstr("no token has"), Not(HasSubstr("hf_right"))));
  request_.token = "hf_right";
  expect_whole(fetch());
}

TEST_F(HubFetch, TheTokenGoesToTheHubAloneAndIntoNoFile) {
  hub_->token = request_.token = "hf_veryhush";
  fetch();
  for (const auto& request : hub_->hub().requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_veryhush");
  EXPECT_FALSE(hub_->store().requests().empty());
  for (const auto& request : hub_->store().requests())
    EXPECT_THAT(request.raw, Not(HasSubstr("hf_veryhush")));
  for (const auto& entry : fs::recursive_directory_iterator(request_.cache_root)) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(read_file(entry.path().string()), Not(HasSubstr("hf_veryhush"))) << entry.path();
  }
}

TEST_F(HubFetch, ABusyHubIsAskedAgainAndAFailingOneIsGivenUp) {
  hub_->busy = {429, 500, 503};
  expect_whole(fetch());
  EXPECT_EQ(notes_.size(), 3u);
  hub_->busy = std::deque<int>(20, 500);
  const auto [line, code] = failure();
  EXPECT_EQ(code, kExitFailed);
  EXPECT_THAT(line, HasSubstr("the hub answers 500"));
  EXPECT_EQ(hub_->busy.size(), 15u);
}

TEST_F(HubFetch, WhatIsNotThereIsSaid) {
  request_.revision = "none";
  auto [line, code] = failure();
  EXPECT_EQ(code, kExitUsage);
  EXPECT_THAT(line, HasSubstr("no revision 'none'"));
  request_.revision = "main";
  request_.model = "org/other";
  EXPECT_THAT(failure().first, HasSubstr("there is no model org/other"));
  request_.model = "../x";
  EXPECT_THAT(failure().first, HasSubstr("allowed is a hub's name"));
  request_.model = "org/tiny";
  request_.revision = "../x";
  EXPECT_THAT(failure().first, HasSubstr("revision '"));
  request_.revision = "main";
  request_.endpoint = "https://me:hush@x";
  EXPECT_THAT(failure().first, AllOf(HasSubstr("endpoint must be"), Not(HasSubstr("hush"))));
  request_.endpoint = "http://127.0.0.1:1";
  EXPECT_EQ(failure().second, kExitFailed);
}

TEST_F(HubFetch, RevisionsWithStrokesAndCommitsAreUnderstood) {
  request_.revision = "refs/pr/1";
  fetch();
  EXPECT_EQ(read_file(folder() + "/refs/refs/pr/1"), hub_->commit);
  EXPECT_TRUE(resolve_model_folder("org/tiny", request_.cache_root, "refs/pr/1"));
  request_.revision = hub_->commit;
  fetch();
  EXPECT_FALSE(fs::exists(folder() + "/refs/" + hub_->commit));
}

TEST_F(HubFetch, AModelWithoutSafetensorsIsRefusedBeforeAnythingIsWritten) {
  hub_.emplace();
  hub_->add("config.json", "{}", false);
  hub_->add("pytorch_model.bin", "pickle", true);
  request_.endpoint = hub_->endpoint();
  EXPECT_THAT(failure().first, AllOf(HasSubstr("no safetensors"), HasSubstr("fetch all files")));
  EXPECT_FALSE(fs::exists(request_.cache_root));
}

TEST_F(HubFetch, ADryRunSaysWhatItWouldDoAndWritesNothing) {
  request_.dry_run = true;
  const FetchedModel model = fetch();
  EXPECT_EQ(model.files.size(), 3u);
  for (const FetchedFile& file : model.files) EXPECT_EQ(file.state, FileState::absent);
  EXPECT_FALSE(fs::exists(request_.cache_root));
  EXPECT_EQ(hub_->downloads("model.safetensors"), 0);
}

TEST_F(HubFetch, TwoFetchesAtOnceDownloadEachFileOnce) {
  FetchedModel first, second;
  std::thread other([&] { first = fetch_model(request_); });
  second = fetch_model(request_);
  other.join();
  expect_whole(first);
  expect_whole(second);
  EXPECT_EQ(hub_->downloads("model.safetensors"), 1);
}

TEST_F(HubFetch, AFileThatAnotherProcessHoldsIsWaitedFor) {
  const std::string lock = request_.cache_root + "/.locks/models--org--tiny/" +
                           hub_->checksum("model.safetensors") + ".lock";
  write_file_atomically(lock, "");
  const int descriptor = open(lock.c_str(), O_RDWR);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  std::atomic<bool> told{false};
  std::thread fetching([&] {
    fetch_model(request_, [&](const FetchProgress& now) {
      if (now.note.find("another fetch") != std::string::npos) told = true;
    });
  });
  while (!told) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(hub_->downloads("model.safetensors"), 0);
  close(descriptor);
  fetching.join();
  EXPECT_TRUE(resolve_model_folder("org/tiny", request_.cache_root));
}

}  // namespace
}  // namespace veil
