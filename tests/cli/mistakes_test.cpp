// What people get wrong, and what the program answers: one line that names the option, the exit
// code that is documented, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_paths.h"
#include "cli/training.h"
#include "tensor/device.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Mistake {
  std::string words;
  std::string says;
  int code = kExitUsage;
};

class ProgramMistakes : public TrainingTest {
 protected:
  ProgramMistakes() {
    const auto write = [this](const std::string& name, const std::string& content) {
      fs::create_directories((work() / name).parent_path());
      std::ofstream(work() / name) << content;
    };
    write("texts/a.txt", std::string(8000, 'x'));
    write("texts/b.txt", std::string(8000, 'y'));
    write("short/a.txt", "a few words");
    write("notes.md", "# notes");
    write("bad.toml", "learning-rte = 0.1\n");
    write("section.toml", "[train]\nsteps = 3\n");
    write("no_config/readme.txt", "nothing");
    write("adapters/adapter_config.json", "{}");
    write("prompts.jsonl", "{\"prompt\": \"a long question\", \"completion\": \"yes\"}\n");
    write("labels.jsonl", "{\"text\": \"fine\", \"label\": \"good\"}\n");
    write("open_secret", std::string(64, 'a'));
    write("words_secret", "not a secret at all");
    fs::create_directory(work() / "empty");
    fs::permissions(work() / "words_secret", fs::perms::owner_read | fs::perms::owner_write);
    fs::permissions(work() / "open_secret", fs::perms::owner_all | fs::perms::others_read);
  }

  void expect_answered(const std::vector<Mistake>& mistakes) const {
    for (const Mistake& mistake : mistakes) {
      SCOPED_TRACE("veil " + mistake.words);
      const auto before = entries();
      const Answer answer = refused_veil(mistake.words);
      EXPECT_EQ(answer.code, mistake.code) << answer.err;
      EXPECT_EQ(answer.complaints(), 1) << answer.err;
      EXPECT_THAT(answer.err, StartsWith("veil: "));
      EXPECT_THAT(answer.err, HasSubstr(mistake.says));
      EXPECT_EQ(answer.err.find("internal error"), std::string::npos) << answer.err;
      EXPECT_EQ(answer.out, "");
      EXPECT_EQ(entries(), before) << "something was left behind";
    }
  }
};

TEST_F(ProgramMistakes, InTheCommandsName) {
  expect_answered({
      {"trian", "unknown command 'trian': did you mean train?"},
      {"--model gpt2", "unknown command '--model'"},
      {"find_bach", "did you mean find-batch?"},
      {"help trian", "did you mean train?"},
      {"suite llama3", "llama3-dp"},
      {"privacy epsilom", "did you mean epsilon?"},
      {"privacy", "allowed are epsilon, sigma and explore"},
      {"train --help privcy", "did you mean privacy?"},
      {"version now", "unexpected argument 'now'"},
  });
}

TEST_F(ProgramMistakes, InAnOptionsNameOrValue) {
  const std::string train = "train --model llama-tiny --from-scratch --device cpu --data texts ";
  expect_answered({
      {train + "--learning-rte 1e-3", "did you mean --learning-rate?"},
      {train + "--num_train_epoch 3", "did you mean --num-train-epochs?"},
      {train + "--lr fast", "--lr fast: allowed is a number"},
      {train + "--lr", "--lr: a value is missing"},
      {train + "--lr=", "--lr=: no value follows"},
      {train + "--lr 1 --learning-rate 2", "--learning-rate is given twice, also as --lr"},
      {train + "--batch-size 0", "--batch-size 0: allowed is a whole number from 1 to 2147483648"},
      {train + "--batch-size 2.5", "--batch-size 2.5: allowed is a whole number"},
      {train + "--per_device_train_batch_size -1", "--per_device_train_batch_size -1: allowed is"},
      {train + "--epochs 0", "--epochs 0: allowed is a number"},
      {train + "--steps ten", "--steps ten: allowed is a whole number"},
      {train + "--optimizer adam", "--optimizer adam: allowed are"},
      {train + "--schedule cosin", "did you mean cosine?"},
      {train + "--compute half", "--compute half: allowed are"},
      {train + "--strategy fsdp3", "--strategy fsdp3: allowed are"},
      {"train --model llama-tiny --from-scratch --data texts --device cpuu",
       "--device cpuu: allowed are auto"},
      {train + "--held-out 1.5", "--held-out 1.5: allowed is a number from 0 to 0.9"},
      {train + "--export", "--export: a value is missing"},
      {train + "more", "unexpected argument 'more'"},
      {train + "-e 8", "-e"},
      {train + "--bf16 --compute fp32", "--bf16 and --compute fp32"},
      {train + "--config nowhere.toml", "--config nowhere.toml: no such file"},
      {train + "--config bad.toml", "unknown key 'learning-rte': did you mean learning-rate?"},
      {train + "--config section.toml", "sections are not used"},
      {train + "--resume nowhere", "--resume nowhere: no such folder"},
      {"train --resume nowhere", "--resume nowhere: no such folder"},
      {"train --resume texts", "--resume texts: the folder holds"},
  });
}

TEST_F(ProgramMistakes, InTheModelOrTheData) {
  const std::string train = "train --device cpu --data texts ",
                    tiny = "train --model llama-tiny --from-scratch --device cpu ";
  expect_answered({
      {train, "--model is missing"},
      {train + "--model lama-tiny", "did you mean llama-tiny?"},
      {train + "--model dit-tiney", "did you mean dit-tiny?"},
      {train + "--model org/unknown", "`veil fetch org/unknown`"},
      {train + "--model no_config", "--model no_config: the folder has no config.json"},
      {train + "--model adapters",
       "pass --model with the model they belong to and --adapter adapters"},
      {train + "--model linear-stack", "`veil profile` measures the linear stack"},
      {tiny, "--data is missing"},
      {tiny + "--data nowhere", "--data nowhere: no such folder or file"},
      {tiny + "--data empty",
       "--data empty: the folder holds no .txt, .json, .jsonl, .csv or .tsv file"},
      {tiny + "--data notes.md", "--data notes.md is no data"},
      {tiny + "--data shapes", "--data shapes: they are images"},
      {tiny + "--data short --held-out 0", "--seq-length 1024: the data has"},
      {tiny + "--data texts --tokenizer nowhere", "--tokenizer nowhere: no such file or folder"},
      {tiny + "--data texts --tokenizer empty", "--tokenizer empty: the folder holds no tokenizer"},
      {tiny + "--data prompts.jsonl --seq-length 8 --held-out 0",
       "--seq-length 8: no sample has a token to train on"},
      {tiny + "--data labels.jsonl --task sequence-classification --held-out 0",
       "words that --label-names lists"},
      {tiny + "--data texts --labels 3", "--labels 3: pass --task sequence-classification"},
      {tiny + "--data texts --image-size 32", "--image-size 32: it belongs to a diffusion"},
      {tiny + "--data texts --shapes 10", "--shapes: it belongs to a diffusion transformer"},
      {"train --model dit-tiny --from-scratch --device cpu --data texts",
       "--data texts holds no images"},
      {"train --model dit-tiny --from-scratch --device cpu --data nowhere",
       "--data nowhere is no folder"},
      {"train --model dit-tiny --from-scratch --device cpu --patch-size 5", "--patch-size"},
      {"train --model dit-tiny --from-scratch --device cpu --heads 5", "pass another --heads"},
      {"train --model dit-tiny --from-scratch --device cpu --seq-length 5",
       "--seq-length: it belongs to a"},
      {"tokenize nowhere", "--data nowhere: no such folder or file"},
      {"report nowhere", "nowhere"},
      {"sample --model llama-tiny", "--model llama-tiny: a preset is a shape without weights"},
      {"sample", "--model is missing"},
  });
}

TEST_F(ProgramMistakes, InPrivacy) {
  const std::string train =
      "train --model llama-tiny --from-scratch --device cpu --data texts --seq-length 16 "
      "--held-out 0 "
      "--batch-size 4 --samples packed ";
  expect_answered({
      {train + "--epsilon 8", "--delta is missing"},
      {train + "--epsilon 8 --delta 1e-6 --accumulation 3 --total-batch-size 16",
       "--accumulation 3: --total-batch-size 16 in micro-batches of 4 on 1 rank makes 4"},
      {train + "--epsilon -1 --delta 1e-6", "--epsilon -1: allowed is more than 0"},
      {train + "--epsilon 8 --delta 2", "--delta must be between 0 and 1"},
      {train + "--epsilon 1e-9 --delta 1e-6 --accountant rdp", "--epsilon 1e-09: with q"},
      {train + "--delta 1e-6", "--delta: it belongs to a private run; pass --epsilon or --sigma"},
      {train + "--clip-norm 1", "--clip-norm: it belongs to a private run"},
      {train + "--sigma -1 --delta 1e-6", "--sigma -1: allowed is 0 or more"},
      {train + "--sigma 1 --delta 1e-6 --secret-file nowhere", "--secret-file nowhere: cannot"},
      {train + "--sigma 1 --delta 1e-6 --secret-file open_secret",
       "--secret-file open_secret: it may be read by others"},
      {train + "--sigma 1 --delta 1e-6 --secret-file words_secret",
       "--secret-file words_secret holds no secret"},
      {train + "--sigma 1 --delta 1e-6 --skip-bad", "the first record would decide which others"},
      {train + "--sigma 1 --delta 1e-6 --clip abbadi", "did you mean abadi?"},
      {train + "--mode gost --sigma 1 --delta 1e-6", "did you mean ghost?"},
      {"privacy epsilon --sigma 1 --q 0.01 --steps 10", "--delta is missing"},
      {"privacy epsilon --sigma 1 --q 2 --steps 10 --delta 1e-6", "q"},
      {"privacy sigma --epsilon 8 --batch 10 --delta 1e-6 --steps 1", "--data-size is missing"},
      {"plan --clip per-layr", "did you mean per-layer?"},
  });
}

TEST_F(ProgramMistakes, InTheMachine) {
  if (gpu_count() > 0) GTEST_SKIP() << "this machine has what the commands ask for";
  expect_answered({
      {"train --model llama-tiny --from-scratch --data texts --device gpu",
       "--device gpu: ", kExitMissing},
      {"profile --preset tiny --device cuda", "--device gpu: ", kExitMissing},
      {"train --model llama-tiny --from-scratch --data texts --graph on",
       "--graph on cannot be met"},
      {"profile --preset tiny --graph on", "--graph on cannot be met"},
      {"profile --preset tiny --simulate-rank 3", "--simulate-rank 3: it is a rank of a simulated"},
  });
}

}  // namespace
}  // namespace veil
