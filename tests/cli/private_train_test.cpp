// veil train, privately, as a person runs it: what it refuses, what it says, what it writes, and
// what it keeps to itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "base/test_paths.h"
#include "cli/training.h"
#include "comm/communicator.h"
#include "privacy/secret.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgramPrivateTrain : public TrainingTest {
 protected:
  // Eight samples expected, two per micro-batch; the quick accountant.
  static std::string privately(const std::string& more) {
    return words(
        "--delta 1e-5 --accountant rdp --samples packed --total-batch-size 8 --batch-size 2 "
        "--clip-norm 0.5 " +
        more);
  }
  std::string secret_file() const {
    RunSecret secret;
    for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(31 * i + 5);
    privacy::write_secret((work() / "given_secret").string(), secret);
    return " --secret-file '" + (work() / "given_secret").string() + "' ";
  }
  static std::vector<Json> metrics(const fs::path& run) {
    std::vector<Json> lines;
    std::istringstream all(text(run / "metrics.jsonl"));
    for (std::string line; std::getline(all, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  static std::vector<int64_t> drawn(const fs::path& run) {
    std::vector<int64_t> counts;
    for (const Json& line : metrics(run)) {
      if (line.contains("samples")) counts.push_back(line["samples"].get<int64_t>());
    }
    return counts;
  }
  static mode_t mode_of(const fs::path& path) {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 0777;
  }
};

TEST_F(ProgramPrivateTrain, WrongInputIsOneLineAndLeavesNothing) {
  const auto wrong = [&](const std::string& more, const std::string& says) {
    const bool samples = more.find("--samples") != std::string::npos;
    expect_refused(words((samples ? "--steps 4 " : "--steps 4 --samples packed ") + more), says);
  };
  wrong("--sigma 1", "--delta is missing");
  wrong("--sigma -1 --delta 1e-5", "--sigma -1: allowed is 0 or more");
  wrong("--sigma 1 --delta 0", "--delta must be between 0 and 1, both excluded, got 0");
  wrong("--sigma 1 --delta 1", "--delta must be between 0 and 1, both excluded, got 1");
  wrong("--epsilon 0 --delta 1e-5", "--epsilon 0");
  wrong("--epsilon 0.001 --delta 1e-5 --accountant rdp", "reaches no less than");
  wrong("--epsilon 8 --sigma 0 --delta 1e-5", "without noise nothing is private");
  wrong("--epsilon 0.1 --sigma 0.5 --delta 1e-5", "spends epsilon");
  wrong("--sigma 1 --delta 1e-5 --total-batch-size 1000000",
        "fewer than the expected batch of 1000000");
  wrong("--sigma 1 --delta 1e-5 --total-batch-size 8 --data-size 4", "a batch of 8 from 4 samples");
  wrong("--sigma 1 --delta 1e-5 --sampler shuffled --data-size 100000",
        "--data-size 100000 with shuffled batches");
  wrong("--mode no_dp --epsilon 8 --delta 1e-5", "--mode no_dp with --epsilon");
  wrong("--mode ghost", "a private run needs noise");
  wrong("--mode goast --sigma 1 --delta 1e-5", "did you mean ghost?");
  wrong("--clip-norm 1", "it belongs to a private run");
  wrong("--sampler poisson", "it belongs to a private run");
  wrong("--sigma 1 --delta 1e-5 --clip-norm 0", "--clip-norm must be positive, got 0");
  wrong("--sigma 1 --delta 1e-5 --clip-norm 1 --max-grad-norm 1", "one of them is allowed");
  wrong("--sigma 1 --delta 1e-5 --accountant gdp", "gdp is an approximation");
  wrong("--sigma 1 --delta 1e-5 --privacy-unit document --samples packed",
        "packed sequences mix documents");
  wrong("--sigma 1 --delta 1e-5 --clip per-layer --layer-norms 1,2", "--layer-norms: 2 are given");
  wrong("--sigma 1 --delta 1e-5 --layer-norms 1,2", "--clip per-layer");
  wrong("--sigma 1 --delta 1e-5 --clip-quantile 0.3", "--clip adaptive");
  wrong("--sigma 1 --delta 1e-5 --clip adaptive --count-noise 0.1", "more than sigma / 2");
  wrong("--sigma 1 --delta 1e-5 --pass-plan per-layer", "--clip per-layer");
  wrong("--sigma 1 --delta 1e-5 --simulate-world 2", "training needs real ranks");
  wrong("--sigma 1 --delta 1e-5 --secret-file nowhere", "--secret-file nowhere: cannot read");
  std::ofstream(work() / "open") << std::string(64, 'a');
  wrong("--sigma 1 --delta 1e-5 --secret-file open", "chmod 600");
}

TEST_F(ProgramPrivateTrain, PrivateAndPlainTrainingDoNotMixInOneRun) {
  ASSERT_EQ(veil(words("--steps 2 --batch-size 8 --output-dir plain")).code, kExitDone);
  expect_refused(privately("--sigma 1 --steps 4 --resume --output-dir plain"), "is not private");
  ASSERT_EQ(veil(privately("--sigma 1 --steps 2 --output-dir private")).code, kExitDone);
  // The folder says that the run is private, and so it stays.
  const Answer resumed = veil("train --steps 4 --resume --output-dir private");
  EXPECT_EQ(resumed.code, kExitDone) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("private   yes"));
  expect_refused(privately("--sigma 1 --steps 4 --resume --output-dir private --sampler shuffled"),
                 "--sampler shuffled");
}

TEST_F(ProgramPrivateTrain, ABudgetFindsItsNoiseAndTheRunStatesItsGuarantee) {
  const Answer answer =
      veil(words("--epsilon 8 --delta 1e-5 --epochs 0.1 --samples packed "
                 "--total-batch-size 64 --batch-size 16 --resume run --export model"),
           "mkdir -p run &&");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("private   yes"));
  EXPECT_THAT(answer.out, HasSubstr("sampler     poisson"));
  EXPECT_THAT(answer.out, HasSubstr("declared public"));
  EXPECT_THAT(answer.out, HasSubstr("| not private: loss"));
  EXPECT_THAT(answer.out, HasSubstr("held out (not private)"));
  EXPECT_THAT(answer.out,
              HasSubstr("delta 1e-05) for one sample (add-remove neighbours), poisson sampling"));
  EXPECT_LT(answer.out.find("noise       sigma"), answer.out.find("| not private"))
      << "the plan comes before the first step";
  const Json guarantee = read(work() / "model" / "privacy.json");
  EXPECT_LE(guarantee["epsilon"].get<double>(), 8);
  EXPECT_GT(guarantee["epsilon"].get<double>(), 7.98);
  EXPECT_EQ(guarantee["accountant"].get<std::string>(), "pld");
  const std::vector<Json> lines = metrics(work() / "run");
  EXPECT_NEAR(lines[lines.size() - 2]["epsilon"].get<double>(), guarantee["epsilon"].get<double>(),
              1e-12);
  for (const Json& line : lines) {
    for (const char* key :
         {"loss", "samples", "bad_samples", "seconds", "held_out_loss", "held_out_perplexity"}) {
      if (!line.contains(key)) continue;
      EXPECT_THAT(line["not_private"].get<std::vector<std::string>>(), ::testing::Contains(key));
    }
  }
}

TEST_F(ProgramPrivateTrain, FrozenParametersAreNamedAndStayFrozenInAResume) {
  const Answer answer =
      veil(privately("--sigma 1 --steps 2 --checkpoint-every 1 --output-dir runs --train-only "
                     "lm_head.* --export model"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json frozen = read(work() / "model" / "privacy.json").at("frozen");
  EXPECT_GT(frozen.size(), 3u);
  EXPECT_EQ(std::count(frozen.begin(), frozen.end(), Json("lm_head.weight")), 0);
  expect_refused(privately("--sigma 1 --steps 4 --resume --output-dir runs --export again "
                           "--train-only model.norm.weight"),
                 "train-only");
  expect_refused(privately("--sigma 1 --steps 2 --train-only lm_haed.weight"),
                 "did you mean lm_head.weight?");
  expect_refused(privately("--sigma 1 --steps 2 --train-only lm_head.* --freeze lm_head.*"),
                 "one of them");
}

TEST_F(ProgramPrivateTrain, ShuffledBatchesAreAccountedForAsSuchAndTheGapIsNamed) {
  const Answer answer = veil(privately("--sigma 4 --steps 3 --sampler shuffled"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("warning     Shuffled batches are no Poisson samples"));
  EXPECT_THAT(answer.out, HasSubstr("Poisson samples of the same size would spend"));
  EXPECT_THAT(answer.out, HasSubstr("zero-out neighbours"));
}

TEST_F(ProgramPrivateTrain, TheSecretStandsInItsFileAndNowhereElse) {
  fs::create_directory(work() / "run");
  const Answer answer = veil(privately("--sigma 1 --steps 4 --resume run --export model --json"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const RunSecret secret = privacy::read_secret((work() / "run" / "secret").string());
  const std::string digits = privacy::hex(secret.data(), secret.size()),
                    raw(secret.begin(), secret.end());
  const std::string nonce = read(work() / "run" / "ledger.json")["nonce"].get<std::string>();
  ASSERT_EQ(nonce.size(), 32u);
  const auto holds = [](const std::string& content, const std::string& what) {
    return content.find(what) != std::string::npos;
  };
  EXPECT_FALSE(holds(answer.out + answer.err, digits) || holds(answer.out + answer.err, raw));
  EXPECT_FALSE(holds(answer.out + answer.err, nonce));
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(work())) {
    if (!entry.is_regular_file()) continue;
    const std::string content = text(entry.path()), name = entry.path().filename().string();
    EXPECT_EQ(holds(content, digits), name == "secret") << entry.path();
    EXPECT_FALSE(holds(content, raw)) << entry.path();
    EXPECT_EQ(holds(content, nonce), name == "ledger.json") << entry.path();
    ++files;
  }
  EXPECT_GE(files, 10);
  for (const char* name : {"secret", "ledger.json", "metrics.jsonl"})
    EXPECT_EQ(mode_of(work() / "run" / name), 0600u) << name;
  for (const auto& entry : fs::directory_iterator(work() / "run" / "tensorboard"))
    EXPECT_EQ(mode_of(entry.path()), 0600u);
  EXPECT_EQ(mode_of(work() / "run" / "checkpoints" / "step_00000004" / "state.json"), 0600u);
  for (const auto& entry : fs::directory_iterator(work() / "model")) {
    if (entry.path().extension() != ".json") continue;
    for (const char* word : {"\"loss\"", "held_out_", "bad_samples", "\"samples\""})
      EXPECT_THAT(text(entry.path()), Not(HasSubstr(word))) << entry.path();
  }
}

TEST_F(ProgramPrivateTrain, KilledAtARandomMomentAnExactResumeEndsBitEqualEpsilonIncluded) {
  const std::string settings =
      "--sigma 0.7 --steps 14 --checkpoint-every 3 --clip adaptive" + secret_file();
  ASSERT_EQ(veil(privately(settings + "--output-dir alone --export whole")).code, kExitDone);
  std::mt19937 random(5);
  for (int i = 0; i < 3; ++i) {
    const fs::path run = work() / fmt::format("run{}", i);
    const fs::path resumed = work() / fmt::format("resumed{}", i);
    fs::create_directory(run);
    const std::string line =
        privately(settings + "--resume '" + run.string() + "' --export " + resumed.string());
    const size_t step = 1 + random() % 12;
    {
      Child child(work(), line);
      wait_for_steps(child, run, step);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 15000));
      child.kill_all();
    }
    const Answer answer = veil(line);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("exact replay")) << "killed after step " << step;
    EXPECT_EQ(logged_steps(run, "epsilon"), steps_to(14));
    EXPECT_TRUE(weight_bytes(resumed) == weight_bytes(work() / "whole"))
        << "killed after step " << step;
    EXPECT_EQ(text(resumed / "privacy.json"), text(work() / "whole" / "privacy.json"));
  }
}

TEST_F(ProgramPrivateTrain, AForkOfACheckpointGetsOtherNoiseAndOtherDraws) {
  fs::create_directory(work() / "run");
  const std::string settings = "--sigma 1 --steps 8 --checkpoint-every 4 ";
  ASSERT_EQ(veil(privately(settings + "--resume run --export first")).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000008");
  fs::copy(work() / "run", work() / "copy", fs::copy_options::recursive);
  // The original replays; the copy does not, with the very same words.
  const Answer again = veil(privately(settings + "--resume run --export again"));
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("exact replay"));
  EXPECT_TRUE(weight_bytes(work() / "again") == weight_bytes(work() / "first"));
  EXPECT_EQ(text(work() / "again" / "privacy.json"), text(work() / "first" / "privacy.json"));
  const Answer fork = veil(privately(settings + "--resume copy --export fork"));
  ASSERT_EQ(fork.code, kExitDone) << fork.err;
  EXPECT_THAT(
      fork.out,
      HasSubstr(
          "fresh nonce, for this folder is a copy; 4 steps that were begun before stay counted"));
  EXPECT_FALSE(weight_bytes(work() / "fork") == weight_bytes(work() / "first"));
  EXPECT_EQ(read(work() / "fork" / "privacy.json")["steps"].get<int64_t>(), 12);
  EXPECT_GT(read(work() / "fork" / "privacy.json")["epsilon"].get<double>(),
            read(work() / "first" / "privacy.json")["epsilon"].get<double>());
  EXPECT_NE(drawn(work() / "copy"), drawn(work() / "run"));
}

TEST_F(ProgramPrivateTrain, AResumeWithOtherSettingsIsNoReplay) {
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(privately("--sigma 1 --steps 4 --resume run")).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  const Answer answer =
      veil(privately("--sigma 1 --steps 4 --resume run --weight-decay 0.2 --export model"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for weight-decay is 0.2, it was 0.1; 2 steps"));
  EXPECT_EQ(read(work() / "model" / "privacy.json")["steps"].get<int64_t>(), 6);
  EXPECT_EQ(read(work() / "model" / "privacy.json")["events"].size(), 2u);
}

TEST_F(ProgramPrivateTrain, ARunEndsWhereItsBudgetDoes) {
  fs::create_directory(work() / "run");
  const std::string settings = "--epsilon 4 --steps 10 --checkpoint-every 5 --resume run ";
  ASSERT_EQ(veil(privately(settings)).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000010");  // five steps are lost
  const Answer answer = veil(privately(settings + "--weight-decay 0.2 --export model"));
  EXPECT_EQ(answer.code, kExitUsage) << answer.out;
  EXPECT_THAT(answer.err, HasSubstr("--epsilon 4: "));
  EXPECT_THAT(answer.err, HasSubstr("is spent"));
  const Answer more = veil(
      privately("--epsilon 4.06 --sigma " +
                read(work() / "run" / "ledger.json")["events"][0]["sigma"].dump() +
                " --steps 10 --checkpoint-every 5 --resume run --weight-decay 0.2 --export model"));
  ASSERT_EQ(more.code, kExitDone) << more.err;
  EXPECT_THAT(more.out, HasSubstr("one more would spend more than epsilon 4.06"));
  const Json guarantee = read(work() / "model" / "privacy.json");
  EXPECT_LE(guarantee["epsilon"].get<double>(), 4.06);
  EXPECT_GT(guarantee["steps"].get<int64_t>(), 10);
  EXPECT_LT(guarantee["steps"].get<int64_t>(), 15);
}

// More steps within a larger budget: noise for what is left of it, so that all of them are taken and
// none of it is left over. The same command again is the same plan, and replays.
TEST_F(ProgramPrivateTrain, ALongerRunTakesAllItsStepsWithinItsLargerBudget) {
  fs::create_directory(work() / "run");
  const std::string at_five = "--checkpoint-every 5 --resume run ";
  ASSERT_EQ(veil(privately("--epsilon 4 --steps 5 " + at_five)).code, kExitDone);
  const Answer spent = veil("train --resume run --steps 100000");
  EXPECT_EQ(spent.code, kExitUsage) << spent.out;
  EXPECT_THAT(spent.err, HasSubstr("--epsilon 4: "));
  EXPECT_THAT(spent.err, HasSubstr("is spent after step 5, and the steps up to 100000 would need"));
  const std::string longer = "train --resume run --epsilon 4.5 --steps 15 ";
  const Answer answer = veil(longer + "--export model");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("before      5 steps spent epsilon 3.99"));
  EXPECT_THAT(answer.out, HasSubstr("for epsilon is 4.5, it was 4.0; steps is 15, it was 5"));
  EXPECT_THAT(answer.out, Not(HasSubstr("budget      allows")));
  const Json guarantee = read(work() / "model" / "privacy.json");
  EXPECT_EQ(guarantee["steps"].get<int64_t>(), 15);
  EXPECT_LE(guarantee["epsilon"].get<double>(), 4.5);
  EXPECT_GT(guarantee["epsilon"].get<double>(), 4.49);
  ASSERT_EQ(guarantee["events"].size(), 2u);
  EXPECT_NE(guarantee["events"][1]["sigma"], guarantee["events"][0]["sigma"]);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000015");
  const Answer again = veil(longer + "--export again");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("as an exact replay"));
  EXPECT_EQ(read(work() / "again" / "privacy.json"), guarantee);
  EXPECT_EQ(text(work() / "again" / "model.safetensors"),
            text(work() / "model" / "model.safetensors"));
}

TEST_F(ProgramPrivateTrain, ARunContinuesWithOtherMicroBatchesOrRanks) {
  fs::create_directory(work() / "run");
  const std::string line = "--sigma 1 --checkpoint-every 1 --resume run";
  ASSERT_EQ(veil(privately(line + " --steps 1")).code, kExitDone);
  // Of the command line nothing but what changes: the rest is the run's.
  const Answer larger = veil("train --resume run --steps 2 --batch-size 8");
  EXPECT_EQ(larger.code, kExitDone) << larger.err;
  if (!built_with_mpi()) return;
  const Answer ranks = veil("train --resume run --steps 3 --ranks 2");
  EXPECT_EQ(ranks.code, kExitDone) << ranks.err;
}

TEST_F(ProgramPrivateTrain, WhatClipsIsNamedOnceWhereverItStands) {
  std::ofstream(work() / "layers.toml")
      << "layer-norms = [0.3, 0.3, 0.3, 0.3]\nclip = \"per-layer\"\n";
  const std::string line =
      "train --model llama-tiny --from-scratch --data '" + source_root() +
      "/examples/text' --seq-length 16 --device cpu --total-batch-size 8 --steps 1 ";
  expect_refused(line + "--sigma 1 --delta 1e-5 --config layers.toml --max-grad-norm 2",
                 "one of them is allowed");
  // An option of a private run in the file still tells that the noise was forgotten.
  std::ofstream(work() / "clip.toml") << "clip-norm = 0.5\n";
  expect_refused(line + "--config clip.toml --max-grad-norm 1", "belongs to a private run");
}

TEST_F(ProgramPrivateTrain, AStepThatAddsNoiseAloneIsSaidOnce) {
  const std::string line = "train --model llama-tiny --from-scratch --data '" + source_root() +
                           "/examples/text' --seq-length 16 --device cpu --total-batch-size 8 "
                           "--batch-size 8 --steps 4 --sigma 1 --delta 1e-5 --accountant rdp "
                           "--optimizer sgd --learning-rate ";
  const std::string says = "was finite, so it added noise alone";
  const Answer usual = veil(line + "0.1"), wild = veil(line + "1e30");
  EXPECT_THAT(usual.err, Not(HasSubstr(says)));
  ASSERT_EQ(wild.code, kExitDone) << wild.err;
  const size_t first = wild.err.find(says);
  ASSERT_NE(first, std::string::npos) << wild.err;
  EXPECT_THAT(wild.err, HasSubstr("lower --learning-rate"));
  EXPECT_EQ(wild.err.find(says, first + 1), std::string::npos) << wild.err;
}

TEST_F(ProgramPrivateTrain, AnEmptyBatchStillStepsAndCounts) {
  fs::create_directory(work() / "run");
  const Answer answer =
      veil(words("--sigma 1 --delta 1e-5 --accountant rdp --steps 12 --batch-size 1 "
                 "--total-batch-size 1 --resume run "
                 "--export model" +
                 secret_file()));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const std::vector<int64_t> counts = drawn(work() / "run");
  EXPECT_EQ(counts.size(), 12u);
  EXPECT_THAT(counts, ::testing::Contains(0))
      << "each of twelve draws is empty with probability 0.37";
  EXPECT_EQ(read(work() / "model" / "privacy.json")["steps"].get<int64_t>(), 12);
  for (const Json& line : metrics(work() / "run")) {
    const bool empty = line.contains("samples") && line["samples"].get<int64_t>() == 0;
    EXPECT_TRUE(!empty || line["loss"].is_null());
  }
}

TEST_F(ProgramPrivateTrain, WithoutNoiseAndClippingItIsPlainTraining) {
  const std::string all =
      "train --model llama-tiny --from-scratch --data '" + source_root() +
      "/examples/text' --seq-length 16 --device cpu --held-out 0 --steps 6 --seed 3 --optimizer "
      "sgd --learning-rate 0.5 --storage fp64 --compute fp64 --reduce fp64 "
      "--batch-size 2 --samples packed ";
  // In fp64, so that the order of sums does not show: an export rounds to fp32, and weights below 4
  // can then differ by one unit in the last place.
  const double allowed = 0x1p-22;
  ASSERT_EQ(veil(all + "--accumulation 4 --max-grad-norm 0 --export plain").code, kExitDone);
  for (const char* mode : {"ghost", "flash", "bookkeeping", "materialize"}) {
    const Answer answer =
        veil(all +
             "--total-batch-size 8 --sigma 0 --delta 1e-5 --clip-norm 1e30 --sampler shuffled "
             "--export private --overwrite --mode " +
             mode);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("not private: without noise"));
    EXPECT_THAT(answer.out, HasSubstr("private   no: each sample's gradient is clipped, but"));
    EXPECT_LE(largest_difference(work() / "plain", work() / "private"), allowed) << mode;
  }
  // One clipped step is not plain training: the comparison can fail.
  ASSERT_EQ(veil(all + "--total-batch-size 8 --sigma 0 --delta 1e-5 --clip-norm 0.1 --sampler "
                       "shuffled --export clipped")
                .code,
            kExitDone);
  EXPECT_GT(largest_difference(work() / "plain", work() / "clipped"), 1e-2);
}

TEST_F(ProgramPrivateTrain, ADocumentAsTheUnitTakesOneSequenceADocument) {
  const Answer answer =
      veil(words("--sigma 1 --delta 1e-5 --accountant rdp --steps 2 --batch-size 2 "
                 "--total-batch-size 4 --privacy-unit "
                 "document --export model"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("for one document (add-remove neighbours)"));
  EXPECT_EQ(read(work() / "model" / "privacy.json")["unit"].get<std::string>(), "document");
}

TEST_F(ProgramPrivateTrain, EveryClipFunctionTrains) {
  for (const char* clip : {"automatic", "psac", "per-layer", "per-layer --pass-plan per-layer",
                           "adaptive --clip-quantile 0.7"}) {
    fs::remove_all(work() / "run");
    fs::create_directory(work() / "run");
    const Answer answer =
        veil(privately(std::string("--sigma 1 --steps 3 --resume run --clip ") + clip));
    ASSERT_EQ(answer.code, kExitDone) << clip << answer.err;
    const std::vector<Json> lines = metrics(work() / "run");
    const bool moves = lines[0]["clip_norm"] != lines[2]["clip_norm"];
    EXPECT_EQ(moves, std::string(clip).starts_with("adaptive")) << clip;
  }
}

TEST_F(ProgramPrivateTrain, TwoRanksTrainPrivatelyAndExactly) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  fs::create_directory(work() / "run");
  const std::string settings =
      "--sigma 1 --steps 6 --checkpoint-every 3 --ranks 2 --mode ghost_fsdp --resume run ";
  ASSERT_EQ(veil(privately(settings + "--export first")).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const Answer again = veil(privately(settings + "--export again"));
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("exact replay"));
  EXPECT_TRUE(weight_bytes(work() / "again") == weight_bytes(work() / "first"));
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const Answer one = veil(privately(
      "--sigma 1 --steps 6 --checkpoint-every 3 --mode ghost_fsdp --resume run --export one"));
  ASSERT_EQ(one.code, kExitDone) << one.err;
  EXPECT_THAT(one.out, HasSubstr("fresh nonce"));
  EXPECT_EQ(read(work() / "one" / "privacy.json")["steps"].get<int64_t>(), 9);
}

// Reductions and updates under the next step's forward: the same weights, and checkpoints hold
// finished steps. Noise is a run's own, so runs of two settings are compared without it.
TEST_F(ProgramPrivateTrain, ADeferredUpdateChangesNoByteOfTheModel) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  const std::string both = "--ranks 2 --accumulate whole --checkpoint-every 3 ",
                    clipped = both + "--sigma 0 --sampler shuffled --steps 5 ";
  ASSERT_EQ(veil(privately(clipped + "--export first")).code, kExitDone);
  const Answer later = veil(privately(clipped + "--defer-update --export second"));
  ASSERT_EQ(later.code, kExitDone) << later.err;
  EXPECT_THAT(later.out, Not(HasSubstr("not deferred")));
  EXPECT_TRUE(weight_bytes(work() / "second") == weight_bytes(work() / "first"));
  fs::create_directory(work() / "run");
  const std::string noisy = both + "--sigma 1 --steps 6 --defer-update --resume run ";
  ASSERT_EQ(veil(privately(noisy + "--export third")).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const Answer again = veil(privately(noisy + "--export fourth"));
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, HasSubstr("exact replay"));
  EXPECT_TRUE(weight_bytes(work() / "fourth") == weight_bytes(work() / "third"));
}

class GpuPrivateTrain : public ProgramPrivateTrain {
 protected:
  void SetUp() override {
    if (gpu_count() == 0) GTEST_SKIP() << "no GPU";
    ProgramPrivateTrain::SetUp();
  }
};

// A given secret makes a run repeatable, on a GPU if its arithmetic is.
TEST_F(GpuPrivateTrain, DeterministicRunsHaveTheSameBits) {
  const auto trained = [&](const std::string& more) {
    std::string line =
        privately("--sigma 1 --steps 5 --export model --strategy zero3 " + more + secret_file());
    line.replace(line.find("--device cpu"), 12, "--device gpu");
    const Answer answer = veil(line, "rm -rf model runs &&");
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return weight_bytes(work() / "model");
  };
  for (const std::string compute : {"--compute bf16", "--compute fp32"}) {
    SCOPED_TRACE(compute);
    const std::string bytes = trained(compute + " --deterministic");
    EXPECT_TRUE(trained(compute + " --deterministic") == bytes);
    EXPECT_FALSE(trained(compute) == bytes) << "without it a run draws a nonce of its own";
  }
}

// By mpirun itself: the program's own launcher gives every rank the same words.
TEST_F(ProgramPrivateTrain, RanksThatReadOtherDataAreRefusedAndRankZeroBeginsNoRun) {
  if (!built_with_mpi()) GTEST_SKIP() << "built without MPI";
  for (const char* const rank : {"0", "1"}) {
    fs::create_directory(work() / (std::string("data") + rank));
    std::ofstream(work() / (std::string("data") + rank) / "text.txt") << std::string(2000, rank[0]);
  }
  fs::create_directory(work() / "run");
  const auto ranks = [&](const std::string& data) {
    std::ofstream(work() / "rank.sh")
        << "exec '" + veil_program() +
               "' train --model llama-tiny --from-scratch --seq-length 16 --device cpu --data "
        << data
        << " --held-out 0 --steps 2 --sigma 1 --delta 1e-5 --accountant rdp --samples packed "
           "--total-batch-size 8 --batch-size 2 --resume run\n";
    const std::string line =
        "cd '" + work().string() +
        "' && OMP_NUM_THREADS=1 mpirun -n 2 --oversubscribe --bind-to none --quiet "
        "--allow-run-as-root --mca plm "
        "isolated "
        "--mca pml ob1 --mca btl vader,self --mca mpi_yield_when_idle 1 sh rank.sh > out 2> err";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(ranks("data$OMPI_COMM_WORLD_RANK"), kExitUsage);
  EXPECT_THAT(text(work() / "err"), HasSubstr("veil: rank 1: other samples were read here than on "
                                              "rank 0: allowed is the same data on every rank\n"));
  EXPECT_THAT(text(work() / "err"), Not(HasSubstr("veil: rank 0: ")));
  EXPECT_TRUE(fs::is_empty(work() / "run")) << "rank 0 began a run that cannot be";
  EXPECT_EQ(ranks("data0"), kExitDone) << text(work() / "err");
  EXPECT_TRUE(fs::exists(work() / "run" / "metrics.jsonl"));
}

}  // namespace
}  // namespace veil
