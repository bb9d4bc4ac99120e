// What Veil exports is what transformers loads: the same logits (scripts/check_export.py). Skipped
// if Python has no transformers; VEIL_TEST_PYTHON names one that has.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>

#include "base/error.h"
#include "base/test_paths.h"
#include "cli/program.h"
#include "kernels/cross_entropy.h"
#include "kernels/random.h"
#include "models/export.h"
#include "models/family.h"
#include "models/test_language_golden.h"
#include "models/weight_tensors.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSamples = 2, kTokens = 48, kPadding = 2;
constexpr int kNotImportable = 77;

class ProgramExportLogits : public ProgramTest {
 protected:
  ProgramExportLogits() { fs::create_directory(models()); }
  fs::path models() const { return work() / "models"; }

  // Weights large enough that every part of the model shows in the logits.
  void export_random(const std::string& name, const LanguageConfig& config) const {
    const Model model = language_model(config, {.tokens = kTokens});
    std::vector<TensorSource> sources;
    for (size_t i = 0; i < model.params.size(); ++i) {
      const ParamShape& param = model.params[i];
      const Tensor values = empty_tensor(param.dims, at::kFloat, cpu_device());
      fill_normal(values, 0.1, /*seed=*/i, RandomDomain::parameters, 0);
      if (param.init.kind == Init::Kind::constant) values.add_(param.init.scale);
      sources.push_back(tensor_source(param.name, values, StoredType::f32));
    }
    export_model((models() / name).string(), {{"config.json", config_json(config).dump(2) + "\n"}},
                 sources);
  }

  // Veil's logits of the exported folder, as read back from it.
  void write_logits(const std::string& name) const {
    LanguageGolden golden;
    golden.config = read_config((models() / name / "config.json").string());
    const bool classifies = golden.config.task == Task::sequence_classification;
    golden.batch.inputs = empty_tensor({kSamples, kTokens}, at::kLong, cpu_device());
    fill_whole(golden.batch.inputs, golden.config.vocabulary - kPadding - 1, /*seed=*/7,
               RandomDomain::inputs, 0);
    golden.batch.inputs.add_(kPadding + 1);
    Tensor mask = at::ones_like(golden.batch.inputs);
    if (classifies) {  // the second sample is shorter
      golden.batch.inputs[1].narrow(0, kTokens / 2, kTokens / 2).fill_(kPadding);
      mask[1].narrow(0, kTokens / 2, kTokens / 2).fill_(0);
      golden.batch.targets = at::ones_like(golden.batch.inputs.select(1, 0));
    } else {
      golden.batch.targets = golden.batch.inputs.clone();
    }
    std::vector<TensorSource> sources = {
        tensor_source("input_ids", golden.batch.inputs, StoredType::i64),
        tensor_source("attention_mask", mask, StoredType::i64)};
    const Model model = golden.model();
    for (const auto& [label, dtype, type] :
         {std::tuple{"logits_fp64", at::kDouble, StoredType::f64},
          std::tuple{"logits_fp32", at::kFloat, StoredType::f32}}) {
      const Tensor logits =
          run_by_hand(golden, model, (models() / name).string(), dtype, cpu_device()).logits;
      sources.push_back(tensor_source(label, logits.to(dtype).contiguous(), type));
    }
    write_safetensors((models() / (name + ".logits.safetensors")).string(), sources);
  }
};

TEST_F(ProgramExportLogits, TransformersComputesTheSameFromEveryFamily) {
  int models_exported = 2;  // the two below
  for (const std::string& preset : preset_names()) {
    if (preset.find("tiny") == std::string::npos) continue;
    LanguageConfig config = *preset_config(preset);
    if (config.padding_id >= 0) config.padding_id = kPadding;
    export_random(preset, config);
    ++models_exported;
  }
  LanguageConfig classifier = *preset_config("llama-tiny");
  classifier.task = Task::sequence_classification;
  classifier.labels = 5;
  classifier.padding_id = kPadding;
  export_random("llama-tiny-classifier", classifier);
  // And what `veil train` itself writes.
  const Answer trained =
      veil("train --model qwen2-tiny --from-scratch --data '" + source_root() +
           "/examples/text' --seq-length 32 --steps 3 --learning-rate 0.01 --held-out 0 --device "
           "cpu --export models/trained");
  ASSERT_EQ(trained.code, kExitDone) << trained.err;
  for (const auto& entry : fs::directory_iterator(models())) {
    if (entry.is_directory()) write_logits(entry.path().filename().string());
  }

  const char* chosen = std::getenv("VEIL_TEST_PYTHON");
  const std::string line = std::string("HF_HUB_OFFLINE=1 '") + (chosen ? chosen : "python3") +
                           "' '" + source_root() + "/scripts/check_export.py' '" +
                           models().string() + "' >'" + (work() / "check").string() + "' 2>'" +
                           (work() / "check.err").string() + "'";
  const int status = std::system(line.c_str());
  const std::string said = text(work() / "check");
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotImportable)
    GTEST_SKIP() << said << "VEIL_TEST_PYTHON names a Python that has transformers";
  std::printf("%s", said.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << said << text(work() / "check.err");
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2 * models_exported)
      << "every model in two precisions was to be compared";
}

}  // namespace
}  // namespace veil
