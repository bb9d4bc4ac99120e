// Where a model's weights come from: never random by accident, and always said.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

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

// What a model came with goes out with it: type, tokenizer, template, generation settings.
TEST_F(ProgramWeights, AnExportHasTheInputsTypeAndAllItsFiles) {
  ASSERT_EQ(veil(train("llama-tiny") + "--from-scratch --storage bf16 --export base").code,
            kExitDone);
  const std::map<std::string, std::string> companions = {
      {"generation_config.json", R"({"eos_token_id": [10, 65], "temperature": 0.6})"},
      {"chat_template.jinja", "{{ messages }}"},
      {"special_tokens_map.json", "{}"},
      {"added_tokens.json", "{}"},
      {"vocab.json", "{}"},
      {"merges.txt", "#version: 0.2\n"},
      {"tokenizer.model", std::string("\0\1\2", 3)}};
  for (const auto& [name, content] : companions) std::ofstream(work() / "base" / name) << content;
  std::ofstream(work() / "base" / "README.md") << "not a part of the model";

  const Answer tuned = veil(train("base") + "--storage fp32 --export tuned");
  ASSERT_EQ(tuned.code, kExitDone) << tuned.err;
  EXPECT_THAT(tuned.out,
              HasSubstr("\ntokens    end 10 \"\\n\" (generation_config.json), padding 257"));
  for (const auto& [name, content] : companions)
    EXPECT_EQ(text(work() / "tuned" / name), content) << name;
  EXPECT_FALSE(fs::exists(work() / "tuned" / "README.md"));
  const Weights weights((work() / "tuned").string());
  for (const std::string& name : weights.names())
    EXPECT_EQ(weights.find(name)->dtype, StoredType::bf16) << name;
  const auto config = nlohmann::json::parse(text(work() / "tuned" / "config.json"));
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
  // An export that is replaced takes its files along.
  EXPECT_EQ(veil(train("base") + "--storage fp32 --export tuned --overwrite").code, kExitDone);

  // From scratch there is no input: the type is the run's own.
  ASSERT_EQ(veil(train("base") + "--from-scratch --storage fp32 --export fresh").code, kExitDone);
  EXPECT_EQ(nlohmann::json::parse(text(work() / "fresh" / "config.json")).at("torch_dtype"),
            "float32");
}

TEST_F(ProgramWeights, TheEndTokenCanBeChosenByNumberOrText) {
  const auto end_of = [&](const std::string& token) {
    const Answer answer = veil(train("llama-tiny") + "--from-scratch --end-token " + token);
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return answer.out;
  };
  EXPECT_THAT(end_of("65"), HasSubstr("tokens    end 65 A (--end-token)"));
  EXPECT_THAT(end_of("B"), HasSubstr("tokens    end 66 B (--end-token)"));
  const std::string line = train("llama-tiny") + "--from-scratch --end-token ";
  expect_refused(line + "264", "--end-token 264: token ids are 0 to 263");
  expect_refused(line + "AB", "--end-token AB: it is 2 tokens of this tokenizer");
}

// An encoder from scratch, its export loaded again, and a language model's head in its place.
TEST_F(ProgramWeights, RobertaTrainsAsAClassifierAndAsNothingElse) {
  const std::string reviews =
      " --data '" + source_root() + "/examples/reviews' --seq-length 16 --device cpu --steps 1 ";
  const Answer made =
      veil("train --model roberta-tiny --from-scratch --labels 3 --export model" + reviews);
  ASSERT_EQ(made.code, kExitDone) << made.err;
  const Answer again = veil("train --model model --epsilon 8 --delta 1e-5" + reviews);
  EXPECT_EQ(again.code, kExitDone) << again.err;
  expect_refused("train --model model --task causal-lm" + reviews,
                 "--task causal-lm: a roberta model is supported for sequence-classification only");
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
