#include "models/test_diffusion_golden.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/files.h"
#include "golden_folder.h"
#include "models/load.h"

namespace veil {

namespace fs = std::filesystem;

std::vector<DiffusionGolden> diffusion_goldens() {
  std::vector<DiffusionGolden> found;
  const fs::path models = goldens_with("models") / "models";
  for (const auto& entry : fs::directory_iterator(models)) {
    if (!fs::exists(entry.path() / "golden.safetensors")) continue;
    const SafetensorsFile file((entry.path() / "golden.safetensors").string());
    if (!file.find("input.x_t")) continue;  // a language model
    const std::string config = (entry.path() / "config.json").string();
    DiffusionGolden golden;
    golden.name = entry.path().filename().string();
    golden.folder = entry.path().string();
    golden.config = parse_dit_config(nlohmann::ordered_json::parse(read_file(config)), config);
    golden.clean = golden_tensor(file, "input.x0");
    golden.timesteps = golden_tensor(file, "input.t");
    golden.labels = golden_tensor(file, "input.y");
    golden.batch = {golden_tensor(file, "input.x_t"),
                    golden_tensor(file, "input.noise"),
                    {},
                    golden.timesteps * golden.config.labels() + golden.labels};
    golden.output = golden_tensor(file, "expected.output");
    golden.losses = golden_tensor(file, "expected.loss");
    golden.grad_sum = golden_tensors(file, "expected.grad_sum.");
    golden.squared_norms = golden_tensors(file, "expected.sq_norm.");
    golden.grad_clipped_sum = golden_tensors(file, "expected.grad_clipped_sum.");
    golden.norms = golden_tensor(file, "expected.norm");
    golden.clip_coefficients = golden_tensor(file, "expected.clip_coef");
    golden.clip_norm =
        nlohmann::json::parse(read_file((entry.path() / "golden.json").string())).at("clip_norm");
    found.push_back(std::move(golden));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  EXPECT_FALSE(found.empty()) << "no diffusion model under " << models;
  return found;
}

Batch DiffusionGolden::batch_of(DType dtype, Device device) const {
  return batch.each([&](const Tensor& t) {
    return t.to(device, t.is_floating_point() ? dtype : t.scalar_type());
  });
}

FlatParams DiffusionGolden::params(const Model& model, DType dtype, Device device) const {
  FlatParams params(model, dtype, device);
  const InitialWeights initial = load_weights(folder, model.params);
  for (size_t i = 0; i < model.params.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    EXPECT_TRUE(initial.fill(id, 0, params[id].view({-1})));
  }
  return params;
}

BlockRun::BlockRun(const Model& model, const Params& params, const Batch& batch)
    : model_(model),
      params_(params),
      batch_(batch),
      tapes_(model.blocks.size()),
      flow_{batch.inputs, batch.conditions} {
  for (size_t b = 0; b < model.blocks.size(); ++b)
    flow_ = model.blocks[b]->forward(params, flow_, tapes_[b]);
}

double BlockRun::backward(GradSink& sink) const {
  const Tensor loss = at::zeros({1}, at::TensorOptions(at::kDouble).device(batch_.inputs.device()));
  Flow grad = model_.loss->run(params_, flow_, batch_, loss, sink);
  for (size_t b = model_.blocks.size(); b-- > 0;)
    grad = model_.blocks[b]->backward(params_, grad, tapes_[b], sink, b > 0);
  return loss.cpu().item<double>();
}

}  // namespace veil
