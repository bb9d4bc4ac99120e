// veil audit as a person runs it, on the real trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/build_info.h"
#include "cli/training.h"
#include "comm/communicator.h"
#include "golden_folder.h"

namespace veil {
namespace {

using ::testing::HasSubstr;

class ProgramAudit : public TrainingTest {
 protected:
  // A tiny run with C and E other than 1; the options of `veil train`. The audit's false alarms are
  // one in a million.
  static std::string audited(const std::string& more) {
    std::string all =
        " -- --model llama-tiny --from-scratch --seq-length 12 --device cpu --delta 1e-5 "
        "--clip-norm 0.5 --total-batch-size 12 " +
        more;
    const auto otherwise = [&](const std::string& name, const std::string& value) {
      if (more.find("--" + name + " ") == std::string::npos) all += " --" + name + " " + value;
    };
    otherwise("data", "'" + source_root() + "/examples/text'");
    otherwise("samples", "packed");
    otherwise("batch-size", "4");
    otherwise("steps", "20");
    return all;
  }
  Json audit(const std::string& words, const std::string& more, int code = 0) const {
    const Answer answer = veil("audit " + words + " --json --output-dir ''" + audited(more));
    EXPECT_EQ(answer.code, code) << more << "\n" << answer.out << answer.err;
    return answer.out.starts_with('{') ? Json::parse(answer.out) : Json::object();
  }
  void write_texts(int count) const {
    std::ofstream texts(work() / "texts.jsonl");
    for (int i = 0; i < count; ++i) texts << "{\"text\": \"a text, number " << i << "\"}\n";
  }
};

TEST_F(ProgramAudit, TheMechanismOfACorrectRunIsItsPlanAndShowsNearlyAllOfItsEpsilon) {
  const Json record = audit("mechanism", "--sigma 0.8 --optimizer adamw --storage bf16");
  EXPECT_EQ(record["verdict"], "pass");
  EXPECT_EQ(record["claim"]["storage"], "bf16");
  EXPECT_GE(record["epsilon_low"].get<double>(), 0.95 * record["claim"]["epsilon"].get<double>());
  EXPECT_LE(record["epsilon_low"].get<double>(), record["claim"]["epsilon"].get<double>());
  EXPECT_EQ(record["canaries"].size(), 6u);
  for (const Json& canary : record["canaries"]) {
    const double distance = canary["distance"].get<double>();
    EXPECT_LE(distance, canary["allowed"].get<double>());
    if (canary["name"] == "not a number") {
      EXPECT_EQ(distance, 0);
    } else if (canary["name"] == "full length") {
      EXPECT_NEAR(distance, 1, 1e-3);
    }
  }
  EXPECT_EQ(record["laws"].size(), 5u);
  EXPECT_THAT(record["not_private"].get<std::string>(), HasSubstr("not covered"));
}

TEST_F(ProgramAudit, AFixedBatchOptimizersAndClipFunctionsPassToo) {
  for (const char* more :
       {"--sigma 0.8 --sampler shuffled --batch-size 12 --mode materialize --optimizer adamw",
        "--sigma 0.8 --clip per-layer --optimizer sgd",
        "--epsilon 8 --train-only model.layers.0.*"})
    EXPECT_EQ(audit("mechanism", more)["verdict"], "pass") << more;
}

TEST_F(ProgramAudit, TwoRanksAreAuditedAsOneRun) {
  if (!built_with_mpi()) GTEST_SKIP() << "ranks need MPI here";
  const Json record = audit("mechanism", "--sigma 0.8 --ranks 2 --strategy zero3");
  EXPECT_EQ(record["claim"]["world"].get<int>(), 2);
  EXPECT_EQ(record["verdict"], "pass");
}

// Each drawn user contributes one sample: a user who owns three moves the sum by C, not by 3 C.
TEST_F(ProgramAudit, AUserIsTheUnitIfTheRunSaysSo) {
  std::ofstream texts(work() / "texts.jsonl");
  for (int i = 0; i < 90; ++i)
    texts << "{\"text\": \"a text of its own, number " << i << "\", \"who\": \"u"
          << (i < 60 ? i : i % 5) << "\"}\n";
  texts.close();
  const std::string users =
      "--data texts.jsonl --samples document --held-out 0 --privacy-unit user --unit-key who ";
  const Json record = audit("mechanism", users + "--sigma 0.8");
  EXPECT_EQ(record["verdict"], "pass");
  EXPECT_EQ(record["claim"]["unit"], "user");
  EXPECT_EQ(record["claim"]["q"].get<double>(), 12.0 / 60);
  EXPECT_GE(record["epsilon_low"].get<double>(), 0.95 * record["claim"]["epsilon"].get<double>());
  double furthest = 0;
  for (const Json& canary : record["canaries"])
    furthest = std::max(furthest, canary["distance"].get<double>());
  EXPECT_NEAR(furthest, 1, 1e-3);
  EXPECT_EQ(record["sampling"]["trials"].get<int64_t>() % 60, 0) << "users are counted";

  std::ofstream few(work() / "few.jsonl");
  for (int i = 0; i < 24; ++i)
    few << "{\"text\": \"a text of its own, number " << i << "\", \"who\": " << i % 12 << "}\n";
  few.close();
  const Json bound = audit("canary --pairs 100 --confidence 0.9999",
                           "--data few.jsonl --samples document --held-out 0 --privacy-unit user "
                           "--unit-key who --sigma 0.3 --steps 1");
  EXPECT_EQ(bound["claim"]["q"].get<double>(), 1);
  EXPECT_GT(bound["epsilon_low"].get<double>(), 1);
  EXPECT_EQ(bound["verdict"], "pass");
}

// Their vocabularies are smaller than the bytes': the first letters are the tokens.
std::string letters_tokenizer(int letters) {
  nlohmann::json vocabulary = {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"\u0120", 3}};
  for (int letter = 0; letter < letters; ++letter)
    vocabulary[std::string(1, static_cast<char>('a' + letter))] = 4 + letter;
  return nlohmann::json{
      {"added_tokens", nlohmann::json::array()},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

TEST_F(ProgramAudit, EveryGoldenModelsMechanismIsItsPlan) {
  if (!build_info().unicode) GTEST_SKIP() << "this build has no PCRE2 and utf8proc";
  for (const auto& folder : golden_model_folders()) {
    SCOPED_TRACE(folder);
    const Json config = read(folder / "config.json");
    const bool images = !config.contains("vocab_size");
    if (images && config.value("num_classes", 0) < 4) continue;  // shapes have four
    const int letters = images ? 0 : std::min(26, config["vocab_size"].get<int>() - 4);
    if (!images) {
      ASSERT_GT(letters, 0) << "a vocabulary without room for text";
      std::ofstream(work() / "tokenizer.json") << letters_tokenizer(letters);
      std::ofstream texts(work() / "texts.jsonl");
      for (int i = 0; i < 60; ++i) {
        std::string words;
        for (int k = 0; k < 20; ++k)
          words += static_cast<char>('a' + (i * k + i / 7 + k * k) % letters);
        texts << "{\"text\": \"" << words << "\", \"label\": " << i % 2 << "}\n";
      }
    }
    const Answer answer = veil(
        "audit mechanism --json --output-dir '' -- --model '" + folder.string() + "' " +
        (images ? "--data shapes --shapes 60"
                : "--data texts.jsonl --tokenizer tokenizer.json --seq-length 8") +
        " --held-out 0 --device cpu --sigma 0.8 --delta 1e-5 --clip-norm 0.1 --total-batch-size 12 "
        "--batch-size 4 --steps 20");
    ASSERT_EQ(answer.code, kExitDone) << answer.out << answer.err;
    const Json record = Json::parse(answer.out);
    EXPECT_EQ(record["verdict"], "pass");
    // How near it comes depends on the number of parameters: its noise is what is measured.
    EXPECT_GT(record["epsilon_low"].get<double>(), 0);
    EXPECT_LE(record["epsilon_low"].get<double>(), record["claim"]["epsilon"].get<double>());
  }
}

TEST_F(ProgramAudit, ACanaryBoundsOneStepFromBelow) {
  // A hundred pairs, the rest is for tests/audit: what is shown is that the real run's noise and
  // canary go into it. At this confidence the bound is above the claim once in ten thousand runs.
  std::ofstream texts(work() / "texts.jsonl");
  for (int i = 0; i < 12; ++i) texts << "{\"text\": \"a text of its own, number " << i << "\"}\n";
  texts.close();
  const Json record = audit("canary --pairs 100 --confidence 0.9999",
                            "--data texts.jsonl --samples document --held-out 0 --sigma 0.3 "
                            "--steps 1");
  EXPECT_EQ(record["claim"]["q"].get<double>(), 1);
  EXPECT_GT(record["epsilon_low"].get<double>(), 1);
  EXPECT_EQ(record["test"]["pairs"].get<int>(), 100);
  EXPECT_EQ(record["verdict"], "pass");
}

TEST_F(ProgramAudit, ARecordAndItsPageAreWrittenAndReportedAgain) {
  const Answer answer = veil("audit mechanism --output-dir found" + audited("--sigma 0.8"));
  ASSERT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("epsilon is at least"));
  EXPECT_THAT(answer.out, HasSubstr("not private"));
  const std::string page = text(work() / "found" / "index.html");
  EXPECT_THAT(page, HasSubstr("Not private"));
  std::filesystem::remove(work() / "found" / "index.html");
  const Answer report = veil("report found");
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(text(work() / "found" / "index.html"), page);
  // Somebody's own file stays.
  std::ofstream(work() / "found" / "index.html") << "mine";
  EXPECT_EQ(veil("audit mechanism --output-dir found" + audited("--sigma 0.8")).code, kExitUsage);
  EXPECT_EQ(text(work() / "found" / "index.html"), "mine");
}

TEST_F(ProgramAudit, ATrainingRunWithCanariesDeclaresThemAndBoundsItsEpsilon) {
  const Answer answer =
      veil(words("--sigma 0.5 --delta 1e-5 --samples packed --total-batch-size 32 --batch-size 16 "
                 "--steps 4 --audit-canaries 60 --resume run --export model"),
           "mkdir -p run &&");
  ASSERT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("guesses about 60 canaries are right"));
  const Json exported = read(work() / "model" / "privacy.json");
  EXPECT_EQ(exported["events"][0]["audit_canaries"].get<int>(), 60);
  EXPECT_THAT(text(work() / "run" / "ledger.json"), HasSubstr("audit_canaries"));
  const Json record = read(work() / "run" / "audit_one_run.json");
  EXPECT_EQ(record["one_run"]["canaries"].get<int>(), 60);
  EXPECT_LE(record["epsilon_low"].get<double>(), record["claim"]["epsilon"].get<double>());
  EXPECT_THAT(record["not_private"].get<std::string>(), HasSubstr("not covered"));
  // The same without canaries has 60 samples fewer.
  const Answer without =
      veil(words("--sigma 0.5 --delta 1e-5 --samples packed --total-batch-size 32 --batch-size 16 "
                 "--steps 1 --export plain"));
  ASSERT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(read(work() / "plain" / "privacy.json")["events"][0]["data_size"].get<int>() + 60,
            exported["events"][0]["data_size"].get<int>());
  EXPECT_EQ(veil("report run").code, 0);
  expect_refused(words("--steps 2 --audit-canaries 20"), "--audit-canaries");
}

// So little noise that the run learns its canaries: 100 right guesses of 100 show an epsilon of 3.
TEST_F(ProgramAudit, CanariesOfARunWithLittleNoiseShowIt) {
  write_texts(40);
  const Answer answer = veil(
      "train --model llama-tiny --from-scratch --data texts.jsonl --tokenizer byte "
      "--seq-length 12 --held-out 0 --device cpu --sigma 0.05 --delta 1e-5 --clip-norm 1 "
      "--accountant rdp --schedule constant --learning-rate 0.01 --steps 40 "
      "--total-batch-size 120 --batch-size 60 --audit-canaries 200 --resume run",
      "mkdir -p run &&");
  ASSERT_EQ(answer.code, 0) << answer.out << answer.err;
  const Json record = read(work() / "run" / "audit_one_run.json");
  EXPECT_GT(record["epsilon_low"].get<double>(), 1);
  EXPECT_LE(record["epsilon_low"].get<double>(), record["claim"]["epsilon"].get<double>());
  EXPECT_EQ(record["verdict"], "pass");
}

// Canaries that are absent are drawn and do not show: a step has half as many samples as its rate
// would give if all were there, and still follows its plan.
TEST_F(ProgramAudit, ARunThatIsMostlyCanariesFollowsItsPlan) {
  write_texts(10);
  const Answer answer = veil(
      "train --model llama-tiny --from-scratch --data texts.jsonl --tokenizer byte "
      "--seq-length 12 --held-out 0 --device cpu --sigma 0.5 --delta 1e-5 --accountant rdp "
      "--steps 2 --total-batch-size 305 --batch-size 61 --audit-canaries 600");
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
}

TEST_F(ProgramAudit, ImagesHaveCanariesToo) {
  const Answer answer = veil(
      "train --model dit-tiny --from-scratch --data shapes --shapes 60 --device cpu --sigma 0.5 "
      "--delta 1e-5 --total-batch-size 8 --batch-size 8 --steps 2 --audit-canaries 20");
  ASSERT_EQ(answer.code, 0) << answer.out << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("guesses about 20 canaries are right"));
}

TEST_F(ProgramAudit, WrongInputIsOneLineAndLeavesNothing) {
  expect_refused("audit", "allowed are mechanism and canary");
  expect_refused("audit mechansim", "did you mean mechanism?");
  expect_refused("audit mechanism", "-- TRAIN OPTIONS");
  expect_refused("audit mechanism" + audited(""), "it belongs to a private run");
  expect_refused("audit mechanism -- --model llama-tiny --from-scratch --data '" + source_root() +
                     "/examples/text'",
                 "not a private run's");
  expect_refused("audit mechanism" + audited("--sigma 0"), "nothing is private");
  expect_refused("audit mechanism" + audited("--sigma 1 --resume nowhere"), "--resume nowhere");
  expect_refused("audit canary --pairs 10" + audited("--sigma 1"), "--pairs");
}

}  // namespace
}  // namespace veil
