#include "models/test_lora_golden.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "golden_folder.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

void use_names_of_the_model(std::map<std::string, Tensor>& tensors) {
  const std::string prefix = adapter_name("");
  std::map<std::string, Tensor> renamed;
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(name.starts_with(prefix)) << name;
    renamed[name.substr(prefix.size())] = tensor;
  }
  tensors = renamed;
}

}  // namespace

std::vector<LoraGolden> lora_goldens() {
  std::vector<LoraGolden> found;
  const fs::path root = goldens_with("lora") / "lora";
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "golden.safetensors")) continue;
    LoraGolden lora;
    lora.golden = language_golden(entry.path(), entry.path() / "base");
    lora.adapter = read_adapter((entry.path() / "adapter").string());
    lora.merged_logits = golden_tensor(
        SafetensorsFile((entry.path() / "golden.safetensors").string()), "expected.merged_logits");
    const Model model = lora.model();
    const int64_t samples = lora.golden.batch.inputs.size(0);
    for (auto* by_name :
         {&lora.golden.grad_sum, &lora.golden.grad_clipped_sum, &lora.golden.squared_norms})
      use_names_of_the_model(*by_name);
    size_t trained = 0;
    for (const ParamShape& param : model.params) {
      trained += !param.frozen;
      if (!param.frozen) continue;
      lora.golden.grad_sum[param.name] = at::zeros(param.dims, at::kDouble);
      lora.golden.grad_clipped_sum[param.name] = at::zeros(param.dims, at::kDouble);
      lora.golden.squared_norms[param.name] = at::zeros({samples}, at::kDouble);
    }
    // What is trained is what the golden has gradients of, no more and no less.
    EXPECT_EQ(lora.golden.grad_sum.size(), model.params.size()) << entry.path();
    EXPECT_GT(trained, 0u);
    found.push_back(std::move(lora));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.golden.name < b.golden.name; });
  EXPECT_FALSE(found.empty()) << "no adapter under " << root;
  return found;
}

Model LoraGolden::model() const {
  Model model = golden.model({.lora = adapter.lora});
  train_adapters(model, adapter.also);
  return model;
}

InitialWeights LoraGolden::weights(const Model& model) const {
  return with_adapter(load_weights(golden.folder, golden.config, model.params), adapter,
                      model.params);
}

}  // namespace veil
