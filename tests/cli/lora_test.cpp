// Adapters as a person trains them: what is written, what continues from it, what is refused.
#include <gmock/gmock.h>

#include "cli/training.h"
#include "comm/communicator.h"
#include "privacy/secret.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ProgramLora : public TrainingTest {
 protected:
  static std::string on(const std::string& model, const std::string& more) {
    return "train --model " + model + " --data '" + source_root() +
           "/examples/text' --seq-length 16 --device cpu --batch-size 4 --evaluation-samples 8 " +
           more;
  }
  void make_base() const {
    const Answer made = veil(on("llama-tiny", "--from-scratch --steps 1 --export base"));
    ASSERT_EQ(made.code, kExitDone) << made.err;
  }
  static std::map<std::string, std::vector<float>> values(const fs::path& file) {
    const Weights weights(file.string());
    std::map<std::string, std::vector<float>> found;
    for (const std::string& name : weights.names()) {
      const StoredTensor& tensor = *weights.find(name);
      std::vector<float>& all = found[name];
      all.resize(static_cast<size_t>(tensor.elements));
      weights.read(tensor, 0, tensor.elements, all.data(), StoredType::f32);
    }
    return found;
  }
};

TEST_F(ProgramLora, APrivateRunWritesWhatPeftReadsAndItsStatement) {
  make_base();
  const Answer tuned =
      veil(on("base",
              "--lora 4 --lora-targets q_proj,v_proj,down_proj --sigma 1 --delta 1e-5 "
              "--accountant rdp --samples packed --total-batch-size 8 --steps 3 --export tuned"));
  ASSERT_EQ(tuned.code, kExitDone) << tuned.err;
  EXPECT_FALSE(fs::exists(work() / "tuned" / "model.safetensors"));
  const Json config = Json::parse(text(work() / "tuned" / "adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8);
  EXPECT_EQ(config["target_modules"], Json::array({"down_proj", "q_proj", "v_proj"}));
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  EXPECT_EQ(config["base_model_name_or_path"], "base");
  EXPECT_EQ(config["modules_to_save"], nullptr);
  const auto adapters = values(work() / "tuned" / "adapter_model.safetensors");
  EXPECT_EQ(adapters.size(), 2u * 3 * 2);  // layers, targets, A and B
  for (const auto& [name, numbers] : adapters) {
    EXPECT_THAT(name, ContainsRegex("^base_model.model.model.layers.[01].*.lora_[AB].weight$"));
    EXPECT_TRUE(std::any_of(numbers.begin(), numbers.end(), [](float x) { return x != 0; }))
        << name << ": noise reaches every adapter";
  }
  const Json statement = Json::parse(text(work() / "tuned" / "privacy.json"));
  EXPECT_EQ(statement["events"].size(), 1u);
  EXPECT_THAT(statement["frozen"].dump(), HasSubstr("model.embed_tokens.weight"));

  // Trained on, the adapter counts as a base.
  const Answer again =
      veil(on("base",
              "--adapter tuned --sigma 1 --delta 1e-5 --accountant rdp --samples packed "
              "--total-batch-size 8 --steps 2 --export more"));
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, ContainsRegex("weights   [0-9]+ tensors from base and tuned\n"));
  const Json more = Json::parse(text(work() / "more" / "privacy.json"));
  EXPECT_EQ(more["base"], statement);
  EXPECT_GT(more["epsilon"].get<double>(), statement["epsilon"].get<double>());
  EXPECT_EQ(Json::parse(text(work() / "more" / "adapter_config.json"))["target_modules"],
            config["target_modules"]);
}

TEST_F(ProgramLora, MergedWeightsAreTheBasesPlusTheAdapters) {
  make_base();
  ASSERT_EQ(veil(on("base",
                    "--lora 3 --lora-alpha 6 --steps 4 --learning-rate 0.01 "
                    "--export tuned"))
                .code,
            kExitDone);
  // A learning rate of 0 leaves the adapter as it is.
  const Answer merged =
      veil(on("base", "--adapter tuned --steps 1 --learning-rate 0 --merge --export whole"));
  ASSERT_EQ(merged.code, kExitDone) << merged.err;
  const auto base = values(work() / "base"), whole = values(work() / "whole");
  const auto adapters = values(work() / "tuned" / "adapter_model.safetensors");
  ASSERT_EQ(base.size(), whole.size());
  int changed = 0;
  for (const auto& [name, before] : base) {
    const std::vector<float>& after = whole.at(name);
    const std::string module = "base_model.model." + name.substr(0, name.rfind(".weight"));
    if (adapters.count(module + ".lora_A.weight") == 0) {
      EXPECT_EQ(before, after) << name;
      continue;
    }
    ++changed;
    const std::vector<float>&a = adapters.at(module + ".lora_A.weight"),
          &b = adapters.at(module + ".lora_B.weight");
    const size_t rank = 3, in = a.size() / rank, out = b.size() / rank;
    ASSERT_EQ(before.size(), in * out);
    double moved = 0;
    for (size_t i = 0; i < out; ++i) {
      for (size_t j = 0; j < in; ++j) {
        double change = 0;
        for (size_t k = 0; k < rank; ++k) change += double{b[i * rank + k]} * a[k * in + j];
        const double expected = before[i * in + j] + 2 * change;
        EXPECT_NEAR(after[i * in + j], expected, 1e-6 * (1 + std::abs(expected))) << name;
        moved = std::max(moved, std::abs(2 * change));
      }
    }
    EXPECT_GT(moved, 1e-4) << name;
  }
  EXPECT_EQ(changed, 2 * 7);
  // Adapters next to the base and inside the weights say and score the same.
  const std::string sampled = "sample --prompt 'The ' --greedy --max-new-tokens 12 --device cpu ";
  const Answer beside = veil(sampled + "--model base --adapter tuned"),
               inside = veil(sampled + "--model whole"), without = veil(sampled + "--model base");
  ASSERT_EQ(beside.code, kExitDone) << beside.err;
  EXPECT_EQ(beside.out, inside.out);
  EXPECT_NE(beside.out, without.out);
  const std::string evaluated =
      "evaluate --seq-length 16 --max-samples 4 --device cpu --json - "
      "--data '" +
      source_root() + "/examples/text' ";
  const Answer scored = veil(evaluated + "--model base --adapter tuned --before whole");
  ASSERT_EQ(scored.code, kExitDone) << scored.err;
  EXPECT_EQ(veil(on("whole", "--steps 1")).code, kExitDone);
}

TEST_F(ProgramLora, AClassifierTrainsItsHeadAsWell) {
  make_base();
  const std::string line = "train --model base --task sequence-classification --labels 3 --data '" +
                           source_root() +
                           "/examples/reviews' --seq-length 16 --device cpu --steps 2 "
                           "--batch-size 4 --evaluation-samples 8 ";
  const Answer answer =
      veil(line + "--lora 2 --lora-targets attention --lora-rslora --export tuned");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  const Json config = Json::parse(text(work() / "tuned" / "adapter_config.json"));
  EXPECT_EQ(config["modules_to_save"], Json::array({"score"}));
  EXPECT_EQ(config["task_type"], "SEQ_CLS");
  EXPECT_EQ(config["use_rslora"], true);
  const auto adapters = values(work() / "tuned" / "adapter_model.safetensors");
  EXPECT_EQ(adapters.count("base_model.model.score.weight"), 1u);
  EXPECT_EQ(adapters.size(), 2u * 4 * 2 + 1);
  const Answer again = veil(line + "--adapter tuned");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_THAT(again.out, ::testing::Not(HasSubstr("starts at random")));
}

TEST_F(ProgramLora, AnAdapterSaysWhichTaskAndHowManyLabelsItsClassifierHas) {
  make_base();
  const std::string reviews = " --data '" + source_root() +
                              "/examples/reviews' --seq-length 16 --device cpu --batch-size 4 ",
                    train = "train --model base --steps 2 --evaluation-samples 8" + reviews;
  const Answer made =
      veil(train + "--task sequence-classification --labels 4 --lora 2 --export tuned");
  ASSERT_EQ(made.code, kExitDone) << made.err;
  const Answer scored =
      veil("evaluate --model base --adapter tuned --max-samples 8 --json" + reviews);
  ASSERT_EQ(scored.code, kExitDone) << scored.err;
  EXPECT_TRUE(Json::parse(scored.out).at("models").at(0).contains("accuracy"));
  const Answer again = veil(train + "--adapter tuned --export more");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_EQ(read(work() / "more" / "adapter_config.json")["task_type"], "SEQ_CLS");
  const Weights head((work() / "more" / "adapter_model.safetensors").string());
  EXPECT_EQ(head.find("base_model.model.score.weight")->dims[0], 4);

  expect_refused(train + "--adapter tuned --task causal-lm",
                 "--task causal-lm: --adapter tuned is for sequence-classification");
  expect_refused(train + "--adapter tuned --label-names bad,good",
                 "--label-names bad,good: 2 names, and the model has 4 labels");
  expect_refused("sample --model base --adapter tuned --prompt x --device cpu",
                 "--adapter tuned: a classifier generates no text");
}

TEST_F(ProgramLora, AResumedRunEndsWithTheSameBitsAndHoldsNothingThatIsFrozen) {
  make_base();
  const std::string line = "--lora 4 --schedule constant --checkpoint-every 2 ";
  ASSERT_EQ(veil(on("base", line + "--steps 4 --output-dir one --export one_export")).code,
            kExitDone);
  ASSERT_EQ(veil(on("base", line + "--steps 2 --output-dir two")).code, kExitDone);
  fs::path run;
  for (const auto& entry : fs::directory_iterator(work() / "two")) run = entry.path();
  int64_t held = 0;
  const Weights checkpoint(
      (run / "checkpoints" / "step_00000002" / "rank_00000.safetensors").string());
  for (const std::string& name : checkpoint.names()) {
    if (name.starts_with("params@")) held += checkpoint.find(name)->elements;
  }
  const auto trained = values(work() / "one_export" / "adapter_model.safetensors");
  int64_t numbers = 0;
  for (const auto& [name, of] : trained) numbers += std::ssize(of);
  EXPECT_GE(held, numbers);
  EXPECT_LE(held, numbers + 8 * std::ssize(trained));  // each begins at an aligned place

  const std::string resumed = on("base", line + "--steps 4 --resume '" + run.string() + "' ");
  ASSERT_EQ(veil(resumed + "--export two_export").code, kExitDone);
  EXPECT_EQ(text(work() / "one_export" / "adapter_model.safetensors"),
            text(work() / "two_export" / "adapter_model.safetensors"));

  // Another base under the same name is not what the run was begun with.
  ASSERT_EQ(
      veil(on("llama-tiny", "--from-scratch --seed 5 --steps 1 --export base --overwrite")).code,
      kExitDone);
  const Answer refused =
      veil(on("base", line + "--steps 6 --resume '" + run.string() + "' --export three"));
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("the frozen parameters are not those"));
  EXPECT_FALSE(fs::exists(work() / "three"));
}

// The same noise, draws and moments after a stop, for one rank and for sharded ones.
TEST_F(ProgramLora, APrivateRunThatWasStoppedEndsWithTheBitsAndTheEpsilonOfOneThatWasNot) {
  make_base();
  RunSecret secret;
  for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(7 * i + 11);
  privacy::write_secret((work() / "given").string(), secret);
  for (const std::string& ranks : {std::string(), std::string("--ranks 2 --strategy zero3 ")}) {
    if (!ranks.empty() && !built_with_mpi()) continue;
    SCOPED_TRACE(ranks);
    const std::string line =
        on("base",
           "--lora 4 --sigma 0.8 --delta 1e-5 --accountant rdp --samples packed "
           "--total-batch-size 8 --steps 6 --checkpoint-every 2 --secret-file given --overwrite " +
               ranks);
    fs::remove_all(work() / "run");
    fs::create_directory(work() / "run");
    ASSERT_EQ(veil(line + "--output-dir alone --export whole").code, kExitDone);
    // Stopped at any moment of its later steps; where it was too quick, what it wrote last is lost.
    {
      Child child(work(), line + "--resume run --export resumed");
      wait_for_steps(child, work() / "run", 3);
      child.kill_all();
    }
    fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
    fs::remove_all(work() / "resumed");
    const Answer answer = veil(line + "--resume run --export resumed");
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    EXPECT_THAT(answer.out, HasSubstr("exact replay"));
    EXPECT_EQ(logged_steps(work() / "run", "epsilon"), steps_to(6));
    EXPECT_EQ(text(work() / "resumed" / "adapter_model.safetensors"),
              text(work() / "whole" / "adapter_model.safetensors"));
    EXPECT_EQ(text(work() / "resumed" / "privacy.json"), text(work() / "whole" / "privacy.json"));
  }
}

TEST_F(ProgramLora, WhatContradictsItselfOrIsNotKnownIsRefusedByName) {
  make_base();
  ASSERT_EQ(veil(on("base", "--lora 2 --steps 1 --export tuned")).code, kExitDone);
  const auto wrong = [&](const std::string& more, const std::string& says) {
    expect_refused(on("base", "--steps 1 " + more), says);
  };
  wrong("--lora 0", "--lora");
  wrong("--lora 2 --freeze '*norm*'", "--train-also");
  wrong("--lora-alpha 3", "pass --lora RANK too");
  wrong("--train-also 'lm_head.*'", "--train-only");
  wrong("--lora 2 --adapter tuned", "decides the rank");
  wrong("--lora 2 --lora-targets qproj", "allowed are all, attention");
  wrong("--lora 2 --train-also nothing", "--train-also nothing");
  wrong("--merge --export x", "--lora");
  wrong("--adapter nowhere", "no such folder");
  wrong("--adapter base", "has no adapter_config.json");
  expect_refused("train --model dit-tiny --from-scratch --device cpu --steps 1 --lora 2",
                 "adapters belong to a language model");
  const Json config = Json::parse(text(work() / "tuned" / "adapter_config.json"));
  const auto with = [&](const std::string& key, const Json& value, const std::string& says) {
    Json other = config;
    other[key] = value;
    std::ofstream(work() / "tuned" / "adapter_config.json") << other.dump();
    wrong("--adapter tuned", says);
  };
  with("use_dora", true, "use_dora (true) is not supported");
  with("lora_bias", true, "lora_bias");
  with("rank_pattern", Json{{"q_proj", 4}}, "rank_pattern");
  with("bias", "all", "bias");
  with("something_new", 3, "something_new (3) is not supported");
  with("init_lora_weights", "pissa", "init_lora_weights");
  with("peft_type", "IA3", "peft_type 'IA3'");
  with("r", 5, "rank 5");
}

TEST_F(ProgramLora, EveryCommandThatMeasuresTakesAdapters) {
  const std::string small = " --lora 3 --seq-length 8 --batch-size 2 --device cpu ";
  const Answer verified = veil(
      "verify --model qwen2-tiny --mode ghost,flash,materialize "
      "--strategy ddp,zero3" +
      small);
  EXPECT_EQ(verified.code, kExitDone) << verified.out << verified.err;
  const Answer plan = veil(
      "plan --model llama-tiny --mode auto --schedule --strategy zero3 --simulate-world 3" + small);
  EXPECT_EQ(plan.code, kExitDone) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("layers.1 (frozen)"));
  const Answer profile =
      veil("profile --model gpt2-tiny --mode auto --warmup 0 --iterations 1" + small);
  EXPECT_EQ(profile.code, kExitDone) << profile.err;
  const Answer found = veil(
      "find-batch --model llama-tiny --lora 3 --seq-length 8 --device cpu "
      "--max-batch 1");
  EXPECT_EQ(found.code, kExitDone) << found.err;
}

}  // namespace
}  // namespace veil
