// veil train, as a person runs it. What takes kills and minutes stands in resume_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/test_paths.h"
#include "base/utf8.h"
#include "cli/training.h"
#include "comm/communicator.h"
#include "comm/rank_link.h"
#include "data/bpe.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ProgramTrain : public TrainingTest {
 protected:
  void expect_stops_and_goes_on(int steps, const std::string& more, const std::vector<int>& signals,
                                const std::string& environment = "");
  void expect_stops_before_first_step(const std::string& more, const std::string& environment,
                                      const std::string& set, int number);
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((work() / name).parent_path());
    std::ofstream(work() / name) << content;
  }
  static std::string labelled(const std::string& data) {
    return "train --model llama-tiny --from-scratch --task sequence-classification --labels 2 "
           "--seq-length 16 "
           "--device cpu --data " +
           data;
  }
};

TEST_F(ProgramTrain, NamesOfLabelsMakeAClassifiersHeadAndAreKeptByItsExport) {
  std::string rows = "text,label\n";
  for (int i = 0; i < 40; ++i) rows += fmt::format("row {},{}\n", i, i % 2 == 0 ? "neg" : "pos");
  write("words.csv", rows);
  const std::string words = " --data words.csv --seq-length 8 --device cpu ",
                    train = "train --steps 1 --batch-size 4" + words,
                    fresh = train +
                            "--model llama-tiny --from-scratch "
                            "--task sequence-classification ";
  const Answer made = veil(fresh + "--label-names neg,pos --export clf");
  ASSERT_EQ(made.code, kExitDone) << made.err;
  const Json numbers = {{"0", "neg"}, {"1", "pos"}};
  EXPECT_EQ(read(work() / "clf" / "config.json")["id2label"], numbers);
  EXPECT_EQ(read(work() / "clf" / "config.json")["label2id"], (Json{{"neg", 0}, {"pos", 1}}));
  const Weights weights((work() / "clf").string());
  EXPECT_EQ(weights.find("score.weight")->dims[0], 2);

  // What is exported knows its labels' names.
  const Answer again = veil(train + "--model clf --export more");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_EQ(read(work() / "more" / "config.json")["id2label"], numbers);
  const Answer scored = veil("evaluate --model clf" + words);
  EXPECT_EQ(scored.code, kExitDone) << scored.err;
  const Answer shown = veil("data words.csv --model clf --label-key label --json");
  ASSERT_EQ(shown.code, kExitDone) << shown.err;
  EXPECT_EQ(Json::parse(shown.out)["labels"], Json::array({20, 20}));

  expect_refused("evaluate --model clf --label-names pos,neg" + words,
                 "--label-names pos,neg: the head of clf was trained for another order (id2label "
                 "has neg,pos)");
  const Answer anew = veil(train + "--model clf --from-scratch --label-names pos,neg --export new");
  ASSERT_EQ(anew.code, kExitDone) << anew.err;
  EXPECT_EQ(read(work() / "new" / "config.json")["id2label"]["0"], "pos");
  expect_refused(fresh + "--labels 3 --label-names neg,pos", "2 names, and the model has 3 labels");
  expect_refused(fresh + "--label-names neg,pos,neg", "a name is there twice");
}

TEST_F(ProgramTrain, WrongInputIsOneLineAndLeavesNothing) {
  fs::create_directory(work() / "empty");
  write("good/a.txt", std::string(8000, 'x'));
  write("broken/a.jsonl", "{\"text\": \"good\"}\n{\"text\": \n");
  write("labels/a.jsonl",
        "{\"text\": \"one\", \"label\": 1}\n{\"text\": \"three\", \"label\": 3}\n");
  const std::string plain = "train --model llama-tiny --from-scratch --device cpu --data good ",
                    good = plain + "--seq-length 16 --held-out 0 ";
  expect_refused("train --model llama-tiny --from-scratch --device cpu --data nowhere",
                 "--data nowhere: no such folder");
  expect_refused("train --model llama-tiny --from-scratch --device cpu --data nowhere --dry-run",
                 "--data nowhere: no such folder");
  expect_refused("train --model dit-tiny --from-scratch --device cpu --data nowhere --dry-run",
                 "--data nowhere is no folder");
  expect_refused("train --model llama-tiny --from-scratch --device cpu --data empty",
                 "holds no .txt, .json, .jsonl, .csv or .tsv file");
  expect_refused("train --model llama-tiny --from-scratch --device cpu --data broken",
                 "broken/a.jsonl:2");
  expect_refused(labelled("labels"), "pass --labels 4");
  expect_refused(labelled("good"), "label");
  expect_refused(good + "--steps 3 --epochs 1", "--steps 3 and --epochs 1");
  expect_refused("train --model lama-tiny --device cpu --data good", "did you mean llama-tiny?");
  expect_refused("train --device cpu --data good", "--model is missing");
  expect_refused(
      "train --model gpt2-tiny --from-scratch --device cpu --data good --held-out 0 --seq-length "
      "2048",
      "positions for 1 to 1024");
  expect_refused(plain + "--seq-length 16 --held-out 0.05", "leaves no document");
  expect_refused(good + "--batch-size 100000", "fewer than one batch");
  expect_refused(good + "--batch-size 100000 --steps 3", "fewer than one batch");
  expect_refused(good + "--warmup-steps 9 --steps 4", "from 0 to the run's 4");
  expect_refused(good + "--graph on", "no GPU");
  expect_refused(good + "--resume nowhere", "no such folder");
  expect_refused(good + "--output-dir good/a.txt/runs", "not a folder");
  expect_refused(good + "--export good/a.txt/model", "not a folder");
  if (built_with_mpi())
    expect_refused("train --model llama-tiny --from-scratch --device cpu --data nowhere --ranks 2",
                   "--data nowhere: no such folder");
}

TEST_F(ProgramTrain, TheDefaultHeldOutPartOfOneDocumentMayBeEmpty) {
  write("one/a.txt", std::string(800, 'x'));
  const std::string line =
      "train --model llama-tiny --from-scratch --device cpu --data one --seq-length 16 --steps 1 ";
  const Answer answer = veil(line);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr(", 0 held out"));
  expect_refused(line + "--held-out 0.05", "leaves no document in the held-out part");
}

TEST_F(ProgramTrain, TokensBeyondTheModelsVocabularyAreRefused) {
  Json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_character(letter, data::byte_to_character(static_cast<uint8_t>(byte)));
    vocabulary[letter] = byte;
  }
  vocabulary["ab"] = 9999;
  const Json tokenizer = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b"}}}},
                          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                          {"decoder", {{"type", "ByteLevel"}}}};
  write("words/tokenizer.json", tokenizer.dump());
  write("a/a.txt", "abababababab");
  const std::string line =
      "train --model llama-tiny --from-scratch --device cpu --seq-length 2 --held-out 0 ";
  expect_refused(line + "--data a --tokenizer words", "beyond the model's vocabulary of 264");
  ASSERT_EQ(veil("tokenize a --tokenizer words --output a.tokens").code, kExitDone);
  expect_refused(line + "--data a.tokens", "beyond the model's vocabulary of 264");
}

TEST_F(ProgramTrain, AResumedRunKeepsWhatDecidesItsSteps) {
  ASSERT_EQ(veil(words("--steps 2 --batch-size 4 --output-dir runs")).code, kExitDone);
  const std::string resumed = words("--steps 4 --resume --output-dir runs ");
  expect_refused(words("--steps 4 --resume --output-dir runs --batch-size 4 --seed 7"), "--seed 7");
  expect_refused(words("--steps 4 --resume --output-dir runs --batch-size 4 --optimizer sgd"),
                 "--optimizer sgd");
  expect_refused(
      "train --model gpt2-tiny --from-scratch --seq-length 16 --batch-size 4 --device cpu --resume "
      "--data "
      "'" +
          source_root() + "/examples/text'",
      "--model gpt2-tiny");
  expect_refused(
      "train --model llama-tiny --from-scratch --seq-length 8 --batch-size 4 --device cpu --resume "
      "--data "
      "'" +
          source_root() + "/examples/text'",
      "--seq-length 8");
  expect_refused(resumed + "--batch-size 8", "pass --total-batch-size 4");
  EXPECT_EQ(
      veil(resumed + "--batch-size 2 --accumulation 2 --strategy ddp --checkpointing full").code,
      kExitDone);
}

TEST_F(ProgramTrain, AResumedRunReadsItsDataAsItBegan) {
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines +=
        fmt::format("{{\"text\": \"text {}\", \"label\": \"{}\"}}\n", i, i % 2 ? "pos" : "neg");
  write("labels.jsonl", lines);
  const Answer begun = veil(labelled("labels.jsonl") +
                            " --label-names neg,pos --held-out 0 --batch-size 4 --steps 1 "
                            "--output-dir runs");
  ASSERT_EQ(begun.code, kExitDone) << begun.err;
  const std::string resumed = "train --resume --output-dir runs --steps 2 ";
  expect_refused(resumed + "--label-names pos,neg",
                 "was begun with neg,pos, which reads the data differently");
  expect_refused(resumed + "--label-key Label", "--label-key Label: the run in ");
  expect_refused(resumed + "--text-key other", "--text-key other: the run in ");
  expect_refused(resumed + "--tokenizer other", "was begun with byte");
  const Answer same = veil(resumed + "--label-names neg,pos --tokenizer bytes --text-key text");
  ASSERT_EQ(same.code, kExitDone) << same.err;
  EXPECT_THAT(same.err, ::testing::Not(HasSubstr("was begun with")));
}

TEST_F(ProgramTrain, AResumedRunSaysThatItsDataIsOther) {
  for (const char* name : {"a.txt", "b.txt"}) write(name, std::string(800, name[0]));
  ASSERT_EQ(
      veil("train --model llama-tiny --from-scratch --seq-length 16 --held-out 0 --device cpu "
           "--data a.txt --batch-size 4 --steps 1 --output-dir runs")
          .code,
      kExitDone);
  const std::string resumed = "train --resume --output-dir runs ";
  const Answer same = veil(resumed + "--steps 2 --data ./a.txt");
  ASSERT_EQ(same.code, kExitDone) << same.err;
  EXPECT_THAT(same.err, ::testing::Not(HasSubstr("was begun with")));
  const Answer other = veil(resumed + "--steps 3 --data b.txt");
  ASSERT_EQ(other.code, kExitDone) << other.err;
  EXPECT_THAT(other.err,
              HasSubstr("the run was begun with --data ./a.txt; it continues with b.txt"));
}

TEST_F(ProgramTrain, AFilesEpochsGiveWayToStepsOfTheCommandLine) {
  write("mine.toml", "epochs = 3\nbatch-size = 4\n");
  const Answer answer = veil(words("--config mine.toml --steps 1 --output-dir runs"));
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("step 1/1"));
  write("both.toml", "epochs = 3\nsteps = 1\n");
  expect_refused(words("--config both.toml"), "one of them is allowed");
}

TEST_F(ProgramTrain, TheNewestRunIsOneThatBegan) {
  ASSERT_EQ(veil(words("--steps 2 --batch-size 4 --output-dir runs")).code, kExitDone);
  // as a start leaves them that fails before its first step
  write("runs/run_99990101_000000/metrics.jsonl", "");
  write("runs/run_99990101_000000/.lock", "");
  write("runs/run_99990101_000001/.lock", "");
  const Answer answer = veil(words("--steps 4 --batch-size 4 --resume --output-dir runs"));
  EXPECT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("resumed   after step 2"));
  // One that trains is not passed over.
  const std::string lock = (work() / "runs/run_99990101_000001/.lock").string();
  const int held = open(lock.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  const Answer busy = veil(words("--steps 6 --batch-size 4 --resume --output-dir runs"));
  close(held);
  EXPECT_EQ(busy.code, kExitUsage);
  EXPECT_THAT(busy.err, HasSubstr("another process trains in this folder"));
}

TEST_F(ProgramTrain, AResumedRunNeedsNothingButItsFolder) {
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(words("--steps 6 --batch-size 4 --schedule linear --export whole")).code,
            kExitDone);
  // Half of it: a longer run that is stopped early has the same learning rates.
  {
    Child child(work(), words("--steps 6 --batch-size 4 --schedule linear --checkpoint-every 1 "
                              "--resume run --export resumed"));
    wait_for_steps(child, work() / "run", 2);
    child.kill_all();
  }
  const Json settings = read(work() / "run" / "settings.json");
  EXPECT_EQ(settings["schedule"].get<std::string>(), "linear");
  const Answer answer = veil("train --resume run");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_EQ(logged_steps(work() / "run"), steps_to(6));
  EXPECT_TRUE(weight_bytes(work() / "resumed") == weight_bytes(work() / "whole"));
  // Of the folder's settings those are shown that differ from the defaults.
  EXPECT_THAT(answer.out, ::testing::ContainsRegex("schedule +linear +run folder"));
  EXPECT_THAT(answer.out, ::testing::ContainsRegex("learning-rate +0.003 +run folder"));
  EXPECT_THAT(answer.out, ::testing::ContainsRegex("data +[^ ]+text +run folder"));
  for (const char* usual : {"seed", "shapes", "input-size", "warmup-steps", "held-out"})
    EXPECT_THAT(answer.out, ::testing::Not(HasSubstr(std::string("  ") + usual + " "))) << usual;
  // What is given wins over the folder.
  const Answer longer = veil("train --resume run --steps 8 --export longer");
  ASSERT_EQ(longer.code, kExitDone) << longer.err;
  EXPECT_EQ(logged_steps(work() / "run"), steps_to(8));
}

TEST_F(ProgramTrain, ARunPrintsWhatDiffersFromTheDefaultsInLinesOfAHundredColumns) {
  const Answer answer = veil(words("--steps 3 --batch-size 4 --output-dir 'my runs'"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("tensorboard --logdir 'my runs/run_"));
  EXPECT_THAT(answer.out, ::testing::ContainsRegex("learning-rate +0.003 +command line"));
  EXPECT_THAT(answer.out, ::testing::Not(HasSubstr("backward-prefetch")));
  EXPECT_THAT(answer.out, HasSubstr("all other settings are the defaults"));
  std::istringstream lines(answer.out);
  int steps = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("step ") || line.find('/') == std::string::npos) continue;
    EXPECT_LE(line.size(), 100u) << line;
    ++steps;
  }
  EXPECT_EQ(steps, 3);
}

TEST_F(ProgramTrain, ASecondSignalAfterCtrlCEndsTheRunAtOnceAndSaysSo) {
  fs::create_directory(work() / "my run");
  Child child(work(), words("--steps 1000000 --checkpoint-every 1000000 --resume 'my run'"));
  wait_for_steps(child, work() / "my run", 1);
  // Both are there when the process continues, so no step can end between them.
  child.signal(SIGSTOP);
  child.signal(SIGINT);
  child.signal(SIGTERM);
  child.signal(SIGCONT);
  EXPECT_THAT(child.wait(), ::testing::AnyOf(128 + SIGINT, 128 + SIGTERM));
  EXPECT_THAT(text(work() / "child.err"), HasSubstr("a second Ctrl-C stops at once"));
  EXPECT_THAT(text(work() / "child.err"), HasSubstr("stopped at once"));
  EXPECT_THAT(text(work() / "child.err"), HasSubstr("`veil train --resume 'my run'` continues"));
}

TEST_F(ProgramTrain, AResumedFolderWithoutACheckpointStartsAnew) {
  fs::create_directory(work() / "run");
  write("run/.lock", "");  // a run that was killed before its first checkpoint
  write("run/metrics.jsonl", "{\"step\": 9, \"loss\": 1}\n");
  const Answer answer = veil(words("--steps 2 --resume run --export resumed"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(logged_steps(work() / "run"), ElementsAre(1, 2));
  ASSERT_EQ(veil(words("--steps 2 --export fresh")).code, kExitDone);
  EXPECT_TRUE(weight_bytes(work() / "resumed") == weight_bytes(work() / "fresh"));
}

// A shorter version of the demo's (scripts/demo.sh), which comes below 2.2 in 200 steps.
TEST_F(ProgramTrain, ATinyModelLearnsTheExamples) {
  fs::create_directory(work() / "run");
  const Answer answer = veil("train --model llama-tiny --from-scratch --data '" + source_root() +
                             "/examples/text' --tokenizer byte --device cpu --seq-length 128 "
                             "--batch-size 16 --steps 60 --learning-rate 5e-3 "
                             "--warmup-steps 10 --log-every 20 --resume run");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  std::vector<Json> lines;
  std::istringstream metrics(text(work() / "run" / "metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 61u);
  EXPECT_NEAR(lines[0]["loss"].get<double>(), 5.58, 0.1);  // log(264): all tokens alike
  EXPECT_LT(lines[60]["held_out_loss"].get<double>(), 2.6);
  EXPECT_THAT(answer.out, HasSubstr("step 20/60"));
  EXPECT_THAT(answer.out, ::testing::Not(HasSubstr("step 21/60")));
}

TEST_F(ProgramTrain, AHalfWrittenCheckpointIsPassedOver) {
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(words("--steps 6 --resume run --export whole")).code, kExitDone);
  const fs::path checkpoints = work() / "run" / "checkpoints";
  fs::rename(checkpoints / "step_00000006", checkpoints / "step_00000006.unfinished");
  fs::create_directory(checkpoints / "step_00000008");  // without its state, which is written last
  const Answer answer = veil(words("--steps 6 --resume run --export resumed"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("resumed   after step 4"));
  EXPECT_EQ(logged_steps(work() / "run"), steps_to(6));
  EXPECT_THAT(logged_steps(work() / "run", "held_out_loss"), ElementsAre(6));
  EXPECT_FALSE(fs::exists(checkpoints / "step_00000006.unfinished"));
  EXPECT_TRUE(weight_bytes(work() / "resumed") == weight_bytes(work() / "whole"));
}

TEST_F(ProgramTrain, ARunThatIsDoneIsExportedAgainAndNotTrainedOn) {
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(words("--steps 3 --resume run --export whole")).code, kExitDone);
  // What a killed process left goes; what a person put there stays.
  write("run/settings.json.4000000.3.tmp", "{");
  write("run/metrics.jsonl.4000000.4.tmp", "{");
  write("run/notes.4000000.4.tmp", "mine");
  ASSERT_EQ(veil(words("--steps 3 --resume run --export again")).code, kExitDone);
  EXPECT_EQ(logged_steps(work() / "run"), steps_to(3));
  EXPECT_THAT(logged_steps(work() / "run", "held_out_loss"), ElementsAre(3));
  EXPECT_TRUE(weight_bytes(work() / "again") == weight_bytes(work() / "whole"));
  EXPECT_FALSE(fs::exists(work() / "run" / "settings.json.4000000.3.tmp"));
  EXPECT_FALSE(fs::exists(work() / "run" / "metrics.jsonl.4000000.4.tmp"));
  EXPECT_TRUE(fs::exists(work() / "run" / "notes.4000000.4.tmp"));
}

// Signals a run several times, resumes it to its end, and holds it against one left alone.
void ProgramTrain::expect_stops_and_goes_on(int steps, const std::string& more,
                                            const std::vector<int>& signals,
                                            const std::string& environment) {
  const std::string settings = fmt::format("--steps {} --checkpoint-every 0 {} ", steps, more);
  ASSERT_EQ(veil(words(settings + "--export whole"), environment).code, kExitDone);
  const fs::path run = work() / "run";
  fs::create_directory(run);
  const std::string line = words(settings + "--resume '" + run.string() + "' --export resumed");
  std::vector<size_t> logged;
  for (const int number : signals) {
    Child child(work(), line, environment);
    wait_for_steps(child, run, logged_steps(run).size() + 1);
    child.signal(number);
    EXPECT_EQ(child.wait(), kExitStopped) << text(work() / "child.err");
    EXPECT_EQ(text(work() / "child.err"),
              "\nveil: stopping after this step with a checkpoint; a second Ctrl-C stops at once "
              "(another signal: after 5 s)\n");
    EXPECT_THAT(text(work() / "child.out"), HasSubstr("continues it"));
    logged.push_back(logged_steps(run).size());
    EXPECT_TRUE(
        fs::exists(run / "checkpoints" / fmt::format("step_{:08}", logged.back()) / "state.json"));
  }
  EXPECT_EQ(std::adjacent_find(logged.begin(), logged.end(), std::greater_equal<>()), logged.end())
      << "a continued run made no step";
  ASSERT_EQ(veil(line, environment).code, kExitDone);
  EXPECT_EQ(logged_steps(run), steps_to(steps));
  EXPECT_TRUE(weight_bytes(work() / "resumed") == weight_bytes(work() / "whole"));
}

TEST_F(ProgramTrain, AStopSignalLeavesACheckpointAndExitCodeFour) {
  expect_stops_and_goes_on(600, "", {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU});
}

// Versions of mpirun differ in the signals that they pass on: this one passes on none.
TEST_F(ProgramTrain, AStopSignalToTheLauncherOfTwoRanksReachesThemWithoutMpirunsHelp) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  write("bin/mpirun",
        "#!/bin/sh\n"
        "PATH=${PATH#*:}\n"
        "trap : USR1 USR2 HUP XCPU\n"
        "trap 'kill -TERM $ranks' TERM INT\n"
        "mpirun \"$@\" & ranks=$!\n"
        "while :; do wait $ranks; code=$?; kill -0 $ranks 2>/dev/null || exit $code; done\n");
  fs::permissions(work() / "bin" / "mpirun", fs::perms::owner_all);
  expect_stops_and_goes_on(60, "--ranks 2", {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU},
                           "PATH='" + (work() / "bin").string() + "':\"$PATH\"");
}

TEST_F(ProgramTrain, AStopSignalToTheLauncherOfTwoRanksOverTcpLeavesACheckpoint) {
  expect_stops_and_goes_on(60, "--ranks 2", {SIGTERM, SIGUSR1}, "PATH=/nowhere");
}

TEST_F(ProgramTrain, ARunUnderNohupOutlivesTheTerminal) {
  for (const char* ranks : {"", "--ranks 2 "}) {
    const fs::path run = work() / (*ranks ? "of_two" : "of_one");
    fs::create_directory(run);
    Child child(work(), words(std::string(ranks) + "--steps 40 --resume '" + run.string() + "'"),
                "nohup");
    wait_for_steps(child, run, 1);
    child.signal(SIGHUP);
    EXPECT_EQ(child.wait(), kExitDone) << text(work() / "child.err");
    EXPECT_EQ(logged_steps(run), steps_to(40));
  }
}

TEST_F(ProgramTrain, SignalsOfLauncherAndSchedulerAreOneRequest) {
  fs::create_directory(work() / "run");
  Child child(work(), words("--steps 1000000 --checkpoint-every 1000000 --resume run"));
  wait_for_steps(child, work() / "run", 1);
  // Both are there when the process continues.
  child.signal(SIGSTOP);
  child.signal(SIGTERM);
  child.signal(SIGUSR1);
  child.signal(SIGCONT);
  EXPECT_EQ(child.wait(), kExitStopped) << text(work() / "child.err");
  EXPECT_THAT(text(work() / "child.err"), ::testing::Not(HasSubstr("stopped at once")));
}

// Signals a run as soon as it has the signal in the set.
void ProgramTrain::expect_stops_before_first_step(const std::string& more,
                                                  const std::string& environment,
                                                  const std::string& set, int number) {
  std::string said;
  // A signal that comes too late, after the first step has begun, is sent again to another run.
  for (int round = 0; round < 5 && said.find("stopped before") == std::string::npos; ++round) {
    Child child(work(), words("--steps 1000000 --export model " + more), environment);
    while (child.runs() && !has_signal(child, set, number))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.signal(number);
    EXPECT_EQ(child.wait(), kExitStopped) << text(work() / "child.err");
    said = text(work() / "child.err");
  }
  EXPECT_THAT(said, HasSubstr("\nveil: stopped before the first step; nothing is lost\n"));
  EXPECT_FALSE(fs::exists(work() / "model"));
}

TEST_F(ProgramTrain, AStopSignalBeforeTheFirstStepEndsTheRunAndSaysSo) {
  expect_stops_before_first_step("", "", "SigCgt:", SIGHUP);
}

// The launcher hears it before there are ranks that could.
TEST_F(ProgramTrain, AStopSignalWhileRanksAreStartedEndsThemAndSaysSo) {
  expect_stops_before_first_step("--ranks 2", "PATH=/nowhere", "SigBlk:", SIGTERM);
  if (built_with_mpi()) expect_stops_before_first_step("--ranks 2", "", "SigBlk:", SIGTERM);
}

// What a scheduler does to a job that it preempted: the same command again.
TEST_F(ProgramTrain, ResumeAutoBeginsARunAndThenContinuesIt) {
  const std::string line = words("--steps 4 --resume auto --output-dir mine");
  const auto runs = [this] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(work() / "mine")) found.push_back(entry.path());
    return found;
  };
  ASSERT_EQ(veil(line).code, kExitDone);
  ASSERT_EQ(runs().size(), 1u);
  const fs::path run = runs()[0];
  fs::remove_all(run / "checkpoints" / "step_00000004");
  const Answer again = veil(line);
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("resumed   after step 2"));
  EXPECT_EQ(runs().size(), 1u);
  EXPECT_EQ(logged_steps(run), steps_to(4));
}

TEST_F(ProgramTrain, AFolderThatAnotherRunHoldsIsRefused) {
  const fs::path run = work() / "run";
  fs::create_directory(run);
  Child child(work(), words("--steps 5000 --checkpoint-every 0 --resume '" + run.string() + "'"));
  wait_for_steps(child, run, 1);
  const Answer answer = veil(words("--steps 2 --resume run"));
  EXPECT_EQ(answer.code, kExitUsage);
  EXPECT_EQ(answer.complaints(), 1) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("another process trains"));
  child.kill_all();
}

TEST_F(ProgramTrain, ACheckpointOfTwoShardedRanksGoesOnWithOne) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const fs::path run = work() / "run";
  fs::create_directory(run);
  const std::string batch = "--steps 12 --checkpoint-every 6 --total-batch-size 8 --resume run ";
  ASSERT_EQ(veil(words(batch + "--ranks 2 --strategy zero3 --export two")).code, kExitDone);
  fs::remove_all(run / "checkpoints" / "step_00000012");
  const Answer answer = veil(words(batch + "--strategy ddp --export one"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("resumed   after step 6"));
  EXPECT_EQ(logged_steps(run), steps_to(12));
  const double difference = largest_difference(work() / "one", work() / "two");
  EXPECT_LE(difference, 1e-5);
  RecordProperty("largest_difference", std::to_string(difference));
}

}  // namespace
}  // namespace veil
