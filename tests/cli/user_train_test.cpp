// veil train with users as the unit of privacy, and with draws that are cut to a maximum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/training.h"
#include "data/image_file.h"
#include "privacy/secret.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ProgramUserTrain : public TrainingTest {
 protected:
  // 60 users, most with one document; their names occur nowhere else.
  static std::string user_name(int64_t user) { return "quagga-" + std::to_string(1000 + user); }
  int64_t write_users(const std::string& more = "", int64_t without = -1) const {
    std::ofstream file(work() / "users.jsonl");
    int64_t documents = 0;
    for (int64_t i = 0; i < 210; ++i) {
      const int64_t user = i < 60 ? i : i * i % 60;  // some own far more than others
      if (user == without) continue;
      file << "{\"who\": \"" << user_name(user) << "\", \"text\": \"document " << i
           << " of many\"}\n";
      ++documents;
    }
    file << more;
    return documents;
  }
  // An option that is not given in `more` has a value of this test's.
  static std::string by_user(const std::string& more) {
    std::string line =
        "train --model llama-tiny --from-scratch --data users.jsonl --seq-length 16 --device cpu "
        "--learning-rate 0.003 --delta 1e-5 --accountant rdp --batch-size 2 " +
        more;
    for (const auto& [option, value] : {std::pair("--total-batch-size", "6"),
                                        {"--privacy-unit", "user"},
                                        {"--unit-key", "who"},
                                        {"--held-out", "0"}}) {
      if (more.find(option) == std::string::npos) line += std::string(" ") + option + " " + value;
    }
    return line;
  }
  std::string secret() const {
    RunSecret bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(17 * i + 3);
    privacy::write_secret((work() / "given").string(), bytes);
    return " --secret-file given ";
  }
};

TEST_F(ProgramUserTrain, WrongInputIsOneLineAndLeavesNothing) {
  write_users();
  expect_refused(by_user("--sigma 1 --steps 2 --unit-key whom"), "users.jsonl:1: there is no user");
  expect_refused(by_user("--sigma 1 --steps 2 --samples packed"), "packed sequences mix users");
  expect_refused(by_user("--sigma 1 --steps 2 --sampler shuffled"), "allowed is poisson");
  expect_refused(by_user("--sigma 1 --steps 2 --privacy-unit document"),
                 "--unit-key who: it goes with --privacy-unit user");
  expect_refused(by_user("--sigma 1 --steps 2 --unit-key ''"), "--unit-key is missing");
  expect_refused(by_user("--sigma 1 --steps 2 --max-batch 0"), "--max-batch 0: allowed is");
  expect_refused(by_user("--sigma 1 --steps 2 --max-batch 7"), "or more would do");
  expect_refused(by_user("--sigma 1 --steps 2 --total-batch-size 100"), "users, fewer than");
  expect_refused(
      "train --model llama-tiny --from-scratch --data users.jsonl --steps 2 --unit-key "
      "who",
      "it belongs to a private run");
  expect_refused("train --model llama-tiny --from-scratch --data users.jsonl --steps 2 --max-batch",
                 "it belongs to a private run");
  write_users("{\"who\": \"a\", \"text\": \"x\", \"who\": \"b\"}\n");
  expect_refused(by_user("--sigma 1 --steps 2"), "users.jsonl:211: the key 'who' is there 2 times");
  write_users("{\"text\": \"no owner\"}\n");
  expect_refused(by_user("--sigma 1 --steps 2"), "users.jsonl:211: there is no user");
}

TEST_F(ProgramUserTrain, TheGuaranteeSpeaksOfUsersAndNoFileNamesOne) {
  write_users();
  const Answer answer = veil(by_user("--sigma 1 --steps 4 --held-out 0.2 --checkpoint-every 2 "
                                     "--resume run --export model"),
                             "mkdir -p run &&");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json guarantee = read(work() / "model" / "privacy.json");
  EXPECT_EQ(guarantee["unit"], "user");
  EXPECT_THAT(guarantee["unit_is"].get<std::string>(), HasSubstr("user with all their documents"));
  // about a fifth of them are held out
  const int64_t users = guarantee["events"][0]["data_size"].get<int64_t>();
  EXPECT_GT(users, 40);
  EXPECT_LT(users, 60);
  EXPECT_EQ(guarantee["events"][0]["q"].get<double>(), 6.0 / static_cast<double>(users));
  EXPECT_THAT(answer.out, HasSubstr("a user with all their documents"));
  EXPECT_THAT(answer.out, HasSubstr(std::to_string(users) + " users expected"));
  EXPECT_THAT(answer.out, HasSubstr("for one user"));
  EXPECT_THAT(answer.out + answer.err, Not(HasSubstr("quagga")));
  for (const char* folder : {"run", "model"}) {
    for (const auto& entry : fs::recursive_directory_iterator(work() / folder)) {
      if (!entry.is_regular_file()) continue;
      EXPECT_THAT(text(entry.path()), Not(HasSubstr("quagga"))) << entry.path();
    }
  }
}

TEST_F(ProgramUserTrain, AResumeReplaysBitByBitAndKeepsItsUsers) {
  write_users();
  for (const std::string& more : {std::string(), std::string("--max-batch 40 ")}) {
    const std::string line = by_user(
        "--sigma 0.8 --steps 6 --checkpoint-every 3 --held-out 0 "
        "--overwrite --resume run " +
        more + secret());
    fs::remove_all(work() / "run");
    const Answer first = veil(line + " --export whole", "mkdir -p run &&");
    ASSERT_EQ(first.code, kExitDone) << first.err;
    fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
    const Answer again = veil(line + " --export resumed");
    ASSERT_EQ(again.code, kExitDone) << again.err;
    EXPECT_THAT(again.out, HasSubstr("as an exact replay"));
    EXPECT_EQ(weight_bytes(work() / "resumed"), weight_bytes(work() / "whole"));
    EXPECT_EQ(read(work() / "resumed" / "privacy.json")["epsilon"],
              read(work() / "whole" / "privacy.json")["epsilon"]);
  }
  expect_refused(by_user("--sigma 0.8 --steps 8 --resume run --unit-key text"),
                 "the run in run was begun with who");
  // Who owns a document is part of the data: another owner is no replay.
  const std::string before = text(work() / "users.jsonl");
  std::string after = before;
  after.replace(after.find(user_name(1)), user_name(1).size(), user_name(4));
  std::ofstream(work() / "users.jsonl") << after;
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const Answer other =
      veil(by_user("--sigma 0.8 --steps 6 --checkpoint-every 3 --held-out 0 "
                   "--resume run --max-batch 40 " +
                   secret()));
  ASSERT_EQ(other.code, kExitDone) << other.err;
  EXPECT_THAT(other.out, HasSubstr("under a fresh nonce"));
}

TEST_F(ProgramUserTrain, AMaximumIsStatedAndNoStepExceedsIt) {
  const Answer answer =
      veil(words("--epsilon 8 --delta 1e-5 --steps 6 --accountant rdp --samples packed "
                 "--total-batch-size 8 --batch-size 4 --max-batch --resume run --export model"),
           "mkdir -p run &&");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("maximum     "));
  const Json guarantee = read(work() / "model" / "privacy.json");
  const int64_t most = guarantee["events"][0]["max_batch"].get<int64_t>();
  EXPECT_EQ(most % 4, 0);
  EXPECT_LE(guarantee["epsilon"].get<double>(), 8);
  EXPECT_EQ(guarantee["delta"].get<double>(), 1e-5);
  EXPECT_GT(guarantee["delta_of_cuts"].get<double>(), 0);
  EXPECT_LE(guarantee["delta_of_cuts"].get<double>(), 1e-8);
  EXPECT_EQ(guarantee["events"][0]["expected_batch"].get<double>(), 8);
}

TEST_F(ProgramUserTrain, ImagesByFolderAndByListingTrainAndAreRefusedWithoutUsers) {
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  std::ofstream listing(work() / "who.jsonl");
  for (int64_t i = 0; i < 40; ++i) {
    const std::string file =
        fmt::format("{}/{}/{}.png", i % 2 ? "cat" : "dog", user_name(i % 10), i);
    const fs::path path = work() / "images" / file;
    fs::create_directories(path.parent_path());
    data::Picture picture{8, 8, std::vector<uint8_t>(192)};
    for (size_t k = 0; k < picture.rgb.size(); ++k)
      picture.rgb[k] = static_cast<uint8_t>(5 * k + 11 * static_cast<size_t>(i));
    data::write_png(path.string(), picture);
    listing << fmt::format("{{\"file\": \"{}\", \"user\": {}}}\n", file, i % 8);
  }
  listing.close();
  const auto line = [&](const std::string& more) {
    return "train --model dit-tiny --image-size 8 --patch-size 2 --from-scratch "
           "--device cpu --sigma 1 --delta 1e-5 --accountant rdp --steps 2 --total-batch-size 4 "
           "--batch-size 2 --held-out 0 --privacy-unit user --unit-key " +
           more;
  };
  const Answer folder = veil(line("folder --data images --export by_folder"));
  ASSERT_EQ(folder.code, kExitDone) << folder.err;
  EXPECT_THAT(folder.out, HasSubstr("4 of 10 users expected"));
  EXPECT_THAT(text(work() / "by_folder" / "privacy.json"), Not(HasSubstr("quagga")));
  EXPECT_THAT(text(work() / "by_folder" / "config.json"), Not(HasSubstr("quagga")));
  const Answer listed = veil(line("who.jsonl --data images"));
  ASSERT_EQ(listed.code, kExitDone) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("4 of 8 users expected"));
  expect_refused(line("nobody.jsonl --data images"), "nobody.jsonl: cannot be read");
  expect_refused(line("folder --data shapes"), "have no users");
}

}  // namespace
}  // namespace veil
