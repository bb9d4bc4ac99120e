// veil sample and veil evaluate for language models, as a person uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramText : public TrainingTest {
 protected:
  // A model that has seen a few steps.
  void make_model() const {
    const Answer trained = veil(words("--steps 30 --export model"));
    ASSERT_EQ(trained.code, kExitDone) << trained.err;
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(work() / name) << content;
  }
};

TEST_F(ProgramText, PromptsAreContinuedTheSameWayAgainAndOtherwiseWithAnotherSeed) {
  make_model();
  const std::string line =
      "sample --model model --device cpu --prompt 'The ' --prompt Once --count 2 "
      "--max-new-tokens 12 --format jsonl ";
  const Answer first = veil(line);
  ASSERT_EQ(first.code, kExitDone) << first.err;
  const std::vector<Json> texts = first.objects();
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_EQ(texts[0].at("prompt"), "The ");
  EXPECT_EQ(texts[3].at("prompt"), "Once");
  EXPECT_LE(texts[0].at("tokens").get<int>(), 12);
  EXPECT_NE(texts[0].at("text"), texts[1].at("text"));
  EXPECT_EQ(veil(line).out, first.out);
  // one at a time: a text does not depend on the batch
  EXPECT_EQ(veil(line + "--batch-size 1").out, first.out);
  EXPECT_NE(veil(line + "--seed 1").out, first.out);
  EXPECT_THAT(first.err, HasSubstr("tokens per second"));
  const Answer plain = veil(
      "sample --model model --device cpu --prompt 'The ' --greedy "
      "--max-new-tokens 5");
  EXPECT_THAT(plain.out, ::testing::StartsWith("The "));
}

TEST_F(ProgramText, PromptsComeFromAFileAndTextsGoToOneThatIsNotReplaced) {
  make_model();
  write("prompts.txt", "First\nSecond\r\n\nThird");
  write("prompts.jsonl", "{\"prompt\": \"Fourth\"}\n");
  const std::string line = "sample --model model --device cpu --max-new-tokens 3 --format jsonl ";
  const Answer answer = veil(line + "--prompts prompts.txt --output texts.jsonl");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const std::string written = text(work() / "texts.jsonl");
  for (const char* prompt : {"First", "Second\"", "Third"}) EXPECT_THAT(written, HasSubstr(prompt));
  EXPECT_EQ(veil(line + "--prompts prompts.jsonl").objects().at(0).at("prompt"), "Fourth");
  write("mine.jsonl", "mine");
  EXPECT_EQ(veil(line + "--prompts prompts.txt --output mine.jsonl").code, kExitUsage);
  EXPECT_EQ(text(work() / "mine.jsonl"), "mine");
}

TEST_F(ProgramText, PromptsOfADataSetEndWhereItsRepliesBegin) {
  make_model();
  write("pairs.jsonl",
        "{\"prompt\": \"one two\", \"completion\": \" three\"}\n"
        "{\"prompt\": \"four\", \"completion\": \" five\"}\n");
  const std::string line =
      "sample --model model --device cpu --greedy --max-new-tokens 4 --format jsonl ";
  const std::vector<Json> found = veil(line + "--data pairs.jsonl").objects();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at("prompt"), "one two");
  EXPECT_EQ(found[1].at("prompt"), "four");
  EXPECT_EQ(found[0].at("text"), veil(line + "--prompt 'one two'").objects().at(0).at("text"));
  EXPECT_EQ(veil(line + "--max-prompts 1 --data pairs.jsonl").objects().size(), 1u);
  // Exact matches: one completion is what the model writes, the other is not. Ten tokens hold the
  // first prompt and its completion, but not the end of the text.
  const std::string own = found[0].at("text").get<std::string>();
  write("own.jsonl", Json{{"prompt", "one two"}, {"completion", own}}.dump() + "\n" +
                         Json{{"prompt", "four"}, {"completion", "zzzz"}}.dump() + "\n");
  const Answer exact = veil(
      "evaluate --model model --device cpu --data own.jsonl --seq-length 10 "
      "--samples document --exact-match --json");
  ASSERT_EQ(exact.code, kExitDone) << exact.err;
  EXPECT_EQ(Json::parse(exact.out).at("models").at(0).at("exact_match").get<double>(), 0.5);
  write("plain.txt", "one two three");
  const Answer plain =
      veil("evaluate --model model --device cpu --data plain.txt --seq-length 4 --exact-match");
  EXPECT_EQ(plain.code, kExitUsage);
  EXPECT_THAT(plain.err, HasSubstr("--exact-match: the data is plain text"));
  EXPECT_THAT(plain.err, HasSubstr("--format chat, completion or instruction"));
}

TEST_F(ProgramText, FilesThatLookAtTheDataAreForTheirOwnerAndReplaceNothing) {
  make_model();
  write("pairs.jsonl", "{\"prompt\": \"one two\", \"completion\": \" three\"}\n");
  const std::string model = " --model model --device cpu --data pairs.jsonl ",
                    evaluate = "evaluate --samples document --seq-length 16" + model;
  for (const auto& [line, file] : std::vector<std::pair<std::string, std::string>>{
           {evaluate + "--json ", "figures.json"},
           {evaluate + "--losses ", "losses.jsonl"},
           {"sample --greedy --max-new-tokens 2" + model + "--output ", "texts.txt"}}) {
    SCOPED_TRACE(line);
    for (int again = 0; again < 2; ++again) {
      const Answer answer = veil(line + file);
      ASSERT_EQ(answer.code, kExitDone) << answer.err;
      EXPECT_EQ(fs::status(work() / file).permissions(),
                fs::perms::owner_read | fs::perms::owner_write);
    }
    write("mine", "mine");
    EXPECT_EQ(veil(line + "mine").code, kExitUsage);
    EXPECT_EQ(text(work() / "mine"), "mine");
  }
}

TEST_F(ProgramText, WhatCannotBeContinuedIsAnsweredInOneLine) {
  make_model();
  write("bad.jsonl", "{\"text\": \"x\"}\n");
  const std::string line = "sample --model model --device cpu ";
  expect_refused("sample --model llama-tiny --device cpu", "a preset is a shape without weights");
  expect_refused("sample --model model --device cpu --each 2", "is a language model");
  expect_refused(line + "--prompt a --prompts bad.jsonl", "allowed is one of them");
  expect_refused(line + "--prompt a --data bad.jsonl", "allowed is one of them");
  expect_refused(line + "--count 2 --greedy", "are the same");
  expect_refused(line + "--prompts absent.txt", "absent.txt");
  EXPECT_THAT(veil(line + "--prompts bad.jsonl").err, HasSubstr("bad.jsonl:1"));
  EXPECT_THAT(veil(line + "--prompt x --max-new-tokens 100000").err, HasSubstr("positions for"));
}

TEST_F(ProgramText, EvaluationIsThatOfTrainingAndShowsWhatItChanged) {
  const std::string texts = source_root() + "/examples/text";
  const Answer trained =
      veil("train --model llama-tiny --from-scratch --data '" + texts +
           "' --seq-length 16 --device cpu --steps 30 --learning-rate 0.003 --export model "
           "--held-out 0.2");
  ASSERT_EQ(trained.code, kExitDone) << trained.err;
  double held_out = 0;
  for (const auto& entry : fs::recursive_directory_iterator(work())) {
    if (entry.path().filename() != "metrics.jsonl") continue;
    std::istringstream lines(text(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      const Json one = Json::parse(line);
      if (one.contains("held_out_loss")) held_out = one.at("held_out_loss").get<double>();
    }
  }
  const Answer answer = veil(
      "evaluate --model model --device cpu --seq-length 16 --held-out 0.2 "
      "--json --data '" +
      texts + "'");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json found = Json::parse(answer.out);
  const Json& model = found.at("models").at(0);
  // the same samples and the same arithmetic, added up in another order
  EXPECT_NEAR(model.at("loss").get<double>(), held_out, 1e-5 * held_out);
  EXPECT_DOUBLE_EQ(model.at("perplexity").get<double>(), std::exp(model.at("loss").get<double>()));
  EXPECT_TRUE(found.at("not_private").get<bool>());

  ASSERT_EQ(veil(words("--steps 1 --export young")).code, kExitDone);
  const Answer table = veil(
      "evaluate --model model --before young --device cpu --seq-length 16 "
      "--data '" +
      texts + "'");
  EXPECT_THAT(table.out, HasSubstr("young"));
  EXPECT_THAT(table.out, HasSubstr("perplexity"));
  EXPECT_THAT(table.out, HasSubstr("not private"));
  expect_refused("evaluate --model model --device cpu", "--data");
}

// The samples of a batch have different lengths: padding is no target, and a data set's loss is the
// mean over its tokens, not over its samples.
TEST_F(ProgramText, EvaluationWeighsEveryTokenAlikeAndPaddingNotAtAll) {
  ASSERT_EQ(veil(words("--steps 1 --export model")).code, kExitDone);
  const std::string brief = "{\"prompt\": \"a\", \"completion\": \"xyz\"}\n",
                    longer = "{\"prompt\": \"a\", \"completion\": \"xyzxyzxyz\"}\n";
  const auto evaluated = [&](const std::string& content) {
    write("records.jsonl", content);
    const Answer answer =
        veil("evaluate --model model --device cpu --seq-length 16 --json --data records.jsonl");
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return Json::parse(answer.out).at("models").at(0);
  };
  const Json one = evaluated(brief), other = evaluated(longer), both = evaluated(brief + longer);
  const auto tokens = [](const Json& of) { return of.at("tokens").get<double>(); };
  const auto loss = [](const Json& of) { return of.at("loss").get<double>(); };
  EXPECT_EQ(tokens(other), tokens(one) + 6);
  EXPECT_EQ(tokens(both), tokens(one) + tokens(other));
  EXPECT_GT(std::abs(loss(one) - loss(other)), 1e-4) << "or weights would not matter";
  EXPECT_NEAR(loss(both), (tokens(one) * loss(one) + tokens(other) * loss(other)) / tokens(both),
              1e-5);
}

TEST_F(ProgramText, AClassifiersAccuracyIsThatOfTraining) {
  const std::string data = "--data '" + source_root() + "/examples/reviews' --label-key label ";
  const Answer trained =
      veil("train --model llama-tiny --from-scratch --task sequence-classification --labels 3 " +
           data + "--seq-length 32 --device cpu --steps 20 --held-out 0.3 --export classifier");
  ASSERT_EQ(trained.code, kExitDone) << trained.err;
  double accuracy = -1;
  for (const auto& entry : fs::recursive_directory_iterator(work())) {
    if (entry.path().filename() != "metrics.jsonl") continue;
    std::istringstream lines(text(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      const Json one = Json::parse(line);
      if (one.contains("held_out_accuracy")) accuracy = one.at("held_out_accuracy").get<double>();
    }
  }
  const Answer answer = veil(
      "evaluate --model classifier --device cpu --seq-length 32 "
      "--held-out 0.3 --json " +
      data);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_DOUBLE_EQ(Json::parse(answer.out).at("models").at(0).at("accuracy").get<double>(),
                   accuracy);
  expect_refused("sample --model classifier --device cpu", "a classifier generates no text");
}

}  // namespace
}  // namespace veil
