// Invariant 4 of docs/privacy.md: noise is never used on two gradients. Every way in which a run
// continues, and which nonce it then takes; what is counted, and when.
#include "privacy/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "data/test_folder.h"
#include "privacy/test_mechanism.h"

namespace veil::privacy {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kMany = 1000;
constexpr int kKept = 2;

bool equal(const ChaChaKey& a, const ChaChaKey& b) {
  return std::equal(a.word, a.word + 8, b.word);
}

class JournalTest : public data::FolderTest {
 protected:
  JournalTest() { fs::create_directory(run()); }
  std::string run() const { return path("run"); }

  JournalInput input(JournalStart start = {}) const {
    JournalInput result;
    result.folder = run();
    result.start = std::move(start);
    result.settings = {{"learning-rate", 0.1}, {"the ranks", 1}};
    result.data = "the data";
    result.replayable = true;
    if (result.start.digest.empty()) result.start.digest = "the initial parameters";
    return result;
  }
  static Journal open(JournalInput from) {
    return Journal(make_mechanism(request()), std::move(from));
  }
  static JournalStart checkpoint(Journal& journal, int64_t step) {
    const std::string digest = fmt::format("the files of step {}", step);
    journal.checkpoint_written(step, digest, kKept);
    return {step, journal.segment(), journal.ledger_at(step), digest};
  }
  static void steps(Journal& journal, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) journal.before_step(step, last);
  }
  // A run to step 10 that crashes; its checkpoint is of step 5.
  JournalStart crashed(ChaChaKey* noise = nullptr) {
    Journal journal = open(input());
    journal.begin();
    steps(journal, 1, 10);
    if (noise) *noise = journal.key(KeyDomain::noise);
    return checkpoint(journal, 5);
  }
  void expect_fresh(const JournalInput& from, const ChaChaKey& before, const std::string& why,
                    int64_t counted = 10) {
    SCOPED_TRACE(why);
    Journal journal = open(from);
    EXPECT_TRUE(journal.resumes());
    EXPECT_FALSE(journal.replays());
    EXPECT_THAT(journal.why_fresh(), HasSubstr(why));
    EXPECT_FALSE(equal(journal.key(KeyDomain::noise), before));
    EXPECT_EQ(journal.ledger().steps(), counted) << "what was begun before stays counted";
    EXPECT_EQ(journal.ledger().events.back().first, from.start.steps);
  }
};

TEST_F(JournalTest, AnExactResumeKeepsTheNonceAndCountsReplayedStepsOnce) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  Journal journal = open(input(start));
  EXPECT_TRUE(journal.replays());
  EXPECT_TRUE(equal(journal.key(KeyDomain::noise), noise));
  journal.begin();
  steps(journal, 6, 20);
  journal.end(20);
  EXPECT_EQ(journal.ledger().steps(), 20);
  EXPECT_EQ(journal.ledger().events.size(), 1u);
}

TEST_F(JournalTest, SoDoesOneThatCrashedBeforeItsFirstCheckpoint) {
  ChaChaKey noise;
  crashed(&noise);
  Journal journal = open(input());
  EXPECT_TRUE(journal.replays());
  EXPECT_TRUE(equal(journal.key(KeyDomain::noise), noise));
}

TEST_F(JournalTest, AndOneThatCrashesAgainAndAgain) {
  ChaChaKey noise;
  JournalStart start = crashed(&noise);
  for (int64_t i = 0; i < 4; ++i) {
    Journal journal = open(input(start));
    ASSERT_TRUE(journal.replays()) << journal.why_fresh();
    EXPECT_TRUE(equal(journal.key(KeyDomain::noise), noise));
    journal.begin();
    steps(journal, start.steps + 1, start.steps + 4);
    if (i % 2 == 1) start = checkpoint(journal, start.steps + 2);
  }
}

TEST_F(JournalTest, WhateverElseDiffersDrawsAFreshNonce) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  JournalInput other = input(start);
  other.settings["learning-rate"] = 0.2;
  expect_fresh(other, noise, "learning-rate is 0.2, it was 0.1");
  other = input(start);
  other.settings["the ranks"] = 2;
  expect_fresh(other, noise, "the ranks");
  other = input(start);
  other.settings["one more"] = true;
  expect_fresh(other, noise, "one more");
  other = input(start);
  other.settings.erase("the ranks");
  expect_fresh(other, noise, "the ranks is not set, it was 1");
  other = input(start);
  other.data = "other data";
  expect_fresh(other, noise, "the data is other");
  other = input(start);
  other.replayable = false;
  expect_fresh(other, noise, "round otherwise");
  other = input(start);
  other.secret_file = path("given");
  write_secret(other.secret_file, draw_secret());
  expect_fresh(other, noise, "the secret is another");
  other = input(start);
  other.start.segment = "0123456789abcdef";
  expect_fresh(other, noise, "not of the run's last segment");
}

TEST_F(JournalTest, SettingsThatDifferAreNamedUpToThreeAndTheOthersCounted) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  const auto why = [&](const JournalInput& from) { return open(from).why_fresh(); };
  JournalInput other = input(start);
  other.settings["learning-rate"] = 0.2;
  other.settings["the ranks"] = 2;
  EXPECT_EQ(why(other), "learning-rate is 0.2, it was 0.1; the ranks is 2, it was 1");
  other.settings["a"] = 1;
  EXPECT_EQ(why(other),
            "a is 1, it was not set; learning-rate is 0.2, it was 0.1; the ranks is 2, it was 1");
  other.settings["b"] = nullptr;
  EXPECT_THAT(why(other), testing::EndsWith("; and 1 more setting"));
  other.settings["c"] = 3;
  EXPECT_THAT(why(other), testing::EndsWith("; and 2 more settings"));
  other = input(start);
  other.settings["b"] = nullptr;
  EXPECT_EQ(why(other), "b is not set, it was not set") << "a setting that only one of them has";
}

// Nobody exchanges a run's own secret on purpose, and under another one the ledger's check value
// says nothing.
TEST_F(JournalTest, ASecretThatIsNotTheLedgersIsRefusedUnlessItIsGiven) {
  const JournalStart start = crashed();
  const std::string whole = read_file(path("run/secret"));
  fs::remove(path("run/secret"));
  write_secret(path("run/secret"), draw_secret());
  EXPECT_THAT(data::complaint([&] { open(input(start)); }),
              testing::AllOf(HasSubstr(path("run/secret")), HasSubstr(path("run/ledger.json")),
                             HasSubstr("do not belong together")));
  write_file_atomically(path("run/secret"), whole, /*owner_only=*/true);
  EXPECT_TRUE(open(input(start)).replays());
  nlohmann::json ledger = nlohmann::json::parse(read_file(path("run/ledger.json")));
  ledger["secret"] = "0123456789abcdef";
  ledger["events"][0]["sigma"] = 9.0;
  write_file_atomically(path("run/ledger.json"), ledger.dump(1), /*owner_only=*/true);
  EXPECT_THAT(data::complaint([&] { open(input(start)); }), HasSubstr("do not belong together"));
}

TEST_F(JournalTest, ACheckpointWithOtherBytesDrawsAFreshNonce) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  JournalInput other = input(start);
  other.start.digest = "the files of step 5, with one byte changed";
  expect_fresh(other, noise, "the checkpoint is not as the run wrote it");
  other.start.digest.clear();
  expect_fresh(other, noise, "the checkpoint is not as the run wrote it");
  EXPECT_TRUE(open(input(start)).replays());
}

TEST_F(JournalTest, SoDoOtherParametersWhereTheSegmentBegan) {
  ChaChaKey noise;
  crashed(&noise);
  JournalInput other = input();
  other.start.digest = "other parameters";
  expect_fresh(other, noise, "it starts from other parameters");
  // A second segment begins at the checkpoint of the first.
  const JournalStart start = crashed(&noise);
  JournalInput second = input(start);
  second.settings["the ranks"] = 2;
  Journal journal = open(second);
  journal.begin();
  steps(journal, 6, 8);
  EXPECT_TRUE(open(second).replays());
  const ChaChaKey of_second = journal.key(KeyDomain::noise);
  second.start.digest = "the files of step 5, with one byte changed";
  expect_fresh(second, of_second, "it starts from other parameters", journal.ledger().steps());
}

TEST_F(JournalTest, TheDigestsOfTheNewestCheckpointsAreKept) {
  Journal journal = open(input());
  journal.begin();
  steps(journal, 1, 10);
  std::vector<JournalStart> starts;
  for (const int64_t step : {2, 4, 6, 8}) starts.push_back(checkpoint(journal, step));
  EXPECT_FALSE(open(input(starts[0])).replays()) << "two are kept, and one in case of a kill";
  EXPECT_TRUE(open(input(starts[1])).replays());
  EXPECT_TRUE(open(input(starts[3])).replays());
  // The newest one is gone; what the replay writes in its place is known in turn.
  Journal replay = open(input(starts[2]));
  ASSERT_TRUE(replay.replays());
  replay.begin();
  steps(replay, 7, 7);
  const JournalStart between = checkpoint(replay, 7);
  EXPECT_TRUE(open(input(between)).replays());
}

TEST_F(JournalTest, ACopiedFolderDrawsAFreshNonceAndTheOriginalKeepsIts) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  fs::copy(run(), path("copy"), fs::copy_options::recursive);
  JournalInput copy = input(start);
  copy.folder = path("copy");
  expect_fresh(copy, noise, "copy");
  fs::create_directory(path("linked"));
  for (const auto& entry : fs::directory_iterator(run()))
    fs::create_hard_link(entry.path(), fs::path(path("linked")) / entry.path().filename());
  copy.folder = path("linked");
  expect_fresh(copy, noise, "copy");
  EXPECT_TRUE(open(input(start)).replays());
  fs::rename(run(), path("moved"));
  JournalInput moved = input(start);
  moved.folder = path("moved");
  EXPECT_TRUE(open(moved).replays()) << "a folder that was moved is the same folder";
}

TEST_F(JournalTest, ACheckpointWithoutItsJournalIsAForkThatKnowsItsOwnCost) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  fs::create_directory(path("new"));
  JournalInput fork = input(start);
  fork.folder = path("new");
  expect_fresh(fork, noise, "without its ledger", 5);
}

TEST_F(JournalTest, LostStepsStayCountedWhenTheRunGoesOnOtherwise) {
  const JournalStart start = crashed();
  JournalInput other = input(start);
  other.settings["the ranks"] = 2;
  Journal journal = open(other);
  EXPECT_EQ(journal.lost_steps(), 5);
  journal.begin();
  steps(journal, 6, 20);
  journal.end(20);
  EXPECT_EQ(journal.ledger().steps(), 25);
  // The first settings again: another segment lies between, so this is no replay of the first.
  Journal back = open(input(checkpoint(journal, 20)));
  EXPECT_FALSE(back.replays());
  EXPECT_EQ(back.ledger().steps(), 25);
  // The second ones again, from where their segment began.
  other.start = start;
  EXPECT_TRUE(open(other).replays());
}

TEST_F(JournalTest, AStepIsCountedOnDiskBeforeItIsTaken) {
  Journal journal = open(input());
  journal.begin();
  for (int64_t step = 1; step <= 30; ++step) {
    journal.before_step(step, 30);
    const auto stored = nlohmann::json::parse(read_file(run() + "/ledger.json"));
    EXPECT_GE(stored["events"][0]["last_step"].get<int64_t>(), step);
    EXPECT_LE(stored["events"][0]["last_step"].get<int64_t>(), 30) << "none beyond what is allowed";
  }
  EXPECT_THROW(journal.before_step(31, 30), std::exception);
}

TEST_F(JournalTest, AnOrderlyEndGivesBackWhatWasReservedAndNotUsed) {
  Journal journal = open(input());
  journal.begin();
  for (int64_t step = 1; step <= 7; ++step) journal.before_step(step, kMany);
  journal.end(7);
  EXPECT_EQ(journal.ledger().steps(), 7);
  EXPECT_EQ(nlohmann::json::parse(read_file(run() + "/ledger.json"))["events"][0]["last_step"]
                .get<int64_t>(),
            7);
}

TEST_F(JournalTest, ButNotWhatAnEarlierProcessMayHaveUsed) {
  const JournalStart start = crashed();
  Journal journal = open(input(start));
  journal.begin();
  journal.before_step(6, kMany);
  journal.end(6);
  EXPECT_EQ(journal.ledger().steps(), 10);
  EXPECT_EQ(journal.ledger_at(6).steps(), 10);
}

TEST_F(JournalTest, AGivenSecretMakesANewRunRepeatableAndOnlyTheSameOne) {
  JournalInput first = input();
  first.secret_file = path("given");
  write_secret(first.secret_file, draw_secret());
  const ChaChaKey noise = open(first).key(KeyDomain::noise);
  JournalInput again = first;
  again.folder = path("elsewhere");
  EXPECT_TRUE(equal(open(again).key(KeyDomain::noise), noise));
  again.settings["learning-rate"] = 0.2;
  EXPECT_FALSE(equal(open(again).key(KeyDomain::noise), noise));
  again = first;
  again.data = "other data";
  EXPECT_FALSE(equal(open(again).key(KeyDomain::noise), noise));
  again = first;
  again.start.digest = "other parameters";
  EXPECT_FALSE(equal(open(again).key(KeyDomain::noise), noise));
  again = first;
  again.replayable = false;
  EXPECT_FALSE(equal(open(again).key(KeyDomain::noise), noise))
      << "where bits may differ it is drawn";
  again = first;
  again.secret_file.clear();
  EXPECT_FALSE(equal(open(again).key(KeyDomain::noise), noise));
}

TEST_F(JournalTest, TheSecretLiesInOneFileThatOnlyItsOwnerReads) {
  Journal journal = open(input());
  journal.begin();
  steps(journal, 1, 3);
  journal.end(3);
  const std::string digits = hex(read_secret(run() + "/secret").data(), 32);
  for (const auto& entry : fs::directory_iterator(run())) {
    struct stat facts {};
    ASSERT_EQ(stat(entry.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << entry.path();
    EXPECT_EQ(read_file(entry.path().string()).find(digits) != std::string::npos,
              entry.path().filename() == "secret")
        << entry.path();
  }
}

TEST_F(JournalTest, ASecretThatWasGivenIsNotCopiedIntoTheRun) {
  JournalInput given = input();
  given.secret_file = path("given");
  write_secret(given.secret_file, draw_secret());
  Journal journal = open(given);
  journal.begin();
  EXPECT_FALSE(fs::exists(run() + "/secret"));
}

TEST_F(JournalTest, OpeningWritesNothing) {
  open(input());
  EXPECT_TRUE(fs::is_empty(run()));
}

TEST_F(JournalTest, AFolderThatMovedOnSinceItWasReadIsRefused) {
  const JournalStart start = crashed();
  Journal late = open(input(start));
  Journal early = open(input(start));
  early.begin();
  steps(early, 6, 12);
  EXPECT_THROW(late.begin(), UserError);
}

TEST_F(JournalTest, AJournalThatIsBrokenOrGoneStopsTheRun) {
  const JournalStart start = crashed();
  const std::string file = run() + "/ledger.json", whole = read_file(file);
  for (const char* broken : {"{\"events\": 7", "", "[]", "{}"}) {
    write_file_atomically(file, broken, true);
    EXPECT_THROW(open(input()), UserError) << broken;
    EXPECT_THROW(open(input(start)), UserError) << broken;
  }
  fs::remove(file);
  EXPECT_THROW(open(input(start)), UserError);
  nlohmann::json other = nlohmann::json::parse(whole);
  other["schema"] = 99;
  write_file_atomically(file, other.dump(1), true);
  EXPECT_THROW(open(input(start)), UserError);
  write_file_atomically(file, whole, true);
  EXPECT_TRUE(open(input(start)).replays());
}

TEST_F(JournalTest, ALedgerThatWasChangedIsRefusedWhateverTheChange) {
  const JournalStart start = crashed();
  const std::string file = run() + "/ledger.json", whole = read_file(file);
  nlohmann::json less = nlohmann::json::parse(whole);
  less["events"][0]["sigma"] = 9.0;
  write_file_atomically(file, less.dump(1), true);
  EXPECT_THROW(open(input(start)), UserError);
  // Any bit of any byte: refused, or read as it was. Only the name of the secret can be other, and
  // then nothing is replayed and all is counted.
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_file_atomically(file, flipped, true);
    try {
      Journal journal = open(input(start));
      EXPECT_GE(journal.ledger().steps(), 10) << "at byte " << at;
      EXPECT_TRUE(!journal.replays() ||
                  nlohmann::json::parse(flipped) == nlohmann::json::parse(whole))
          << "at byte " << at;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) / 2);
}

// Version 1 had no check value: its runs continue under a fresh nonce.
TEST_F(JournalTest, ALedgerOfTheFirstSchemaIsCountedAndNotReplayed) {
  ChaChaKey noise;
  const JournalStart start = crashed(&noise);
  nlohmann::json first = nlohmann::json::parse(read_file(run() + "/ledger.json"));
  first["schema"] = 1;
  first.erase("check");
  write_file_atomically(run() + "/ledger.json", first.dump(1), true);
  expect_fresh(input(start), noise, "earlier version");
}

// Without a check value every value may be anything.
TEST_F(JournalTest, AValueOfAnotherKindIsRefusedOrCounted) {
  const JournalStart start = crashed();
  const std::string file = run() + "/ledger.json";
  const nlohmann::json whole = nlohmann::json::parse(read_file(file));
  int refused = 0;
  for (const auto& [key, ignored] : whole.items()) {
    for (const nlohmann::json& value :
         {nlohmann::json(3), nlohmann::json("x"), nlohmann::json(1e300), nlohmann::json::array(),
          nlohmann::json({{"steps", 1e300}, {"segment", 1}})}) {
      nlohmann::json other = whole;
      other["schema"] = 1;
      other[key] = value;
      write_file_atomically(file, other.dump(1), true);
      try {
        EXPECT_FALSE(open(input(start)).replays()) << key << " " << value;
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), HasSubstr("ledger.json"));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace veil::privacy
