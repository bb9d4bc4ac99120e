// Where a model's weights come from: never random by accident, and always said.
#include <gmock/gmock.h>

#include "cli/training.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramWeights : public TrainingTest {
 protected:
  static std::string train(const std::string& model) {
    return "train --model " + model + " --data '" + source_root() +
           "/examples/text' --seq-length 16 --device cpu --steps 1 --batch-size 2 ";
  }
  // A model's folder with its config alone.
  void make_folder(const std::string& name) const {
    ASSERT_EQ(veil(train("llama-tiny") + "--from-scratch --export " + name).code, kExitDone);
    fs::remove(work() / name / "model.safetensors");
  }
};

TEST_F(ProgramWeights, AModelWithoutWeightsIsRefusedAndTheErrorSaysWhatToDo) {
  make_folder("shape");
  make_folder("pickled");
  std::ofstream(work() / "pickled" / "pytorch_model.bin") << "x";
  expect_refused(train("llama-tiny"), "a preset is a shape without weights");
  expect_refused(train("llama-tiny"), "--from-scratch");
  expect_refused("train --model dit-tiny --device cpu --steps 1", "--from-scratch");
  expect_refused(train("shape"), "no weights (model.safetensors)");
  expect_refused(train("pickled"), "pytorch_model.bin, which Veil does not read");
  expect_refused(train("org/never-fetched"), "`veil fetch org/never-fetched`");
}

TEST_F(ProgramWeights, EveryCommandSaysWhereTheWeightsComeFrom) {
  const Answer scratch = veil(train("llama-tiny") + "--from-scratch --export model");
  ASSERT_EQ(scratch.code, kExitDone) << scratch.err;
  EXPECT_THAT(scratch.out, HasSubstr("\nweights   random (--from-scratch)\n"));
  const Answer loaded = veil(train("model"));
  ASSERT_EQ(loaded.code, kExitDone) << loaded.err;
  EXPECT_THAT(loaded.out, ::testing::ContainsRegex("\nweights   [0-9]+ tensors from model\n"));
  const Answer again = veil(train("model") + "--from-scratch");
  EXPECT_THAT(again.out, HasSubstr("\nweights   random (--from-scratch)\n"));

  const std::string small = " --seq-length 8 --batch-size 1 --device cpu ";
  const std::string measured = "weights   random (measured only)\n";
  EXPECT_THAT(veil("profile --model llama-tiny --warmup 0 --iterations 1" + small).out,
              HasSubstr(measured));
  EXPECT_THAT(veil("profile --model model --warmup 0 --iterations 1" + small).out,
              HasSubstr("tensors from model\n"));
  EXPECT_THAT(veil("verify --model llama-tiny --mode flash --strategy ddp" + small).out,
              HasSubstr(measured));
  EXPECT_THAT(veil("find-batch --model llama-tiny --seq-length 8 --device cpu --max-batch 1").out,
              HasSubstr(measured));
}

TEST_F(ProgramWeights, ANewClassifierHeadOnLoadedWeightsIsAllowedAndNamed) {
  ASSERT_EQ(veil(train("llama-tiny") + "--from-scratch --export model").code, kExitDone);
  const Answer answer =
      veil("train --model model --task sequence-classification --labels 3 --data '" +
           source_root() + "/examples/reviews' --seq-length 16 --device cpu --steps 1");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out,
              HasSubstr("tensors from model; score.weight is new and starts at random\n"));
}

TEST_F(ProgramWeights, ARunThatGoesOnTakesTheWeightsOfItsCheckpoint) {
  ASSERT_EQ(veil(train("llama-tiny") + "--from-scratch --output-dir runs").code, kExitDone);
  const Answer resumed = veil("train --model llama-tiny --data '" + source_root() +
                              "/examples/text' --seq-length 16 --device cpu --steps 2 "
                              "--batch-size 2 --output-dir runs --resume");
  ASSERT_EQ(resumed.code, kExitDone) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("weights   of this run, after step 1\n"));
}

TEST_F(ProgramWeights, BytesAreNoSilentFallBackForAModelWithAVocabularyOfWords) {
  expect_refused(train("gpt2") + "--from-scratch --layers 1", "--tokenizer is missing: gpt2");
  expect_refused(train("gpt2") + "--from-scratch --layers 1", "--tokenizer bytes");
  const Answer answer = veil(train("llama-tiny") + "--from-scratch --tokenizer bytes");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("(byte)"));
}

}  // namespace
}  // namespace veil
