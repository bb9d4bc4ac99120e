#include "models/test_language_golden.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/files.h"
#include "golden_folder.h"
#include "kernels/cross_entropy.h"
#include "models/load.h"
#include "models/weight_tensors.h"
#include "nn/classifier.h"
#include "nn/encoder_classifier.h"
#include "nn/lm_head.h"

namespace veil {
namespace fs = std::filesystem;

Tensor golden_tensor(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  EXPECT_NE(tensor, nullptr) << file.path() << " has no " << name;
  if (!tensor) return {};
  const Tensor out = empty_tensor(
      tensor->dims, tensor->dtype == StoredType::i64 ? at::kLong : at::kDouble, cpu_device());
  const auto bytes = file.bytes(*tensor);
  EXPECT_EQ(bytes.size(), out.nbytes());
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.data_ptr()));
  return out;
}

std::map<std::string, Tensor> golden_tensors(const SafetensorsFile& file,
                                             const std::string& prefix) {
  std::map<std::string, Tensor> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name.rfind(prefix, 0) == 0)
      tensors[tensor.name.substr(prefix.size())] = golden_tensor(file, tensor.name);
  }
  return tensors;
}

std::string LayerScales::layer_of(const std::string& parameter) {
  static const std::regex numbered(R"((.*?\.\d+)\..*)");
  std::smatch match;
  if (std::regex_match(parameter, match, numbered)) return match[1];
  return parameter.substr(0, parameter.find_last_of('.'));
}

LayerScales::LayerScales(const std::map<std::string, Tensor>& expected) {
  for (const auto& [name, tensor] : expected) {
    double& layer = layer_[layer_of(name)];
    layer = std::max(layer, own_[name] = tensor.abs().max().item<double>());
  }
}

double LayerScales::of(const std::string& parameter, DType dtype) const {
  const double layer = layer_.at(layer_of(parameter));
  const double scale = dtype == at::kDouble ? std::max(own_.at(parameter), 1e-4 * layer) : layer;
  return std::max(scale, 1e-30);
}

double relative_to_layer(const Tensor& got, const Tensor& expected, const LayerScales& scales,
                         const std::string& parameter, DType dtype) {
  return (got.to(at::kDouble).cpu() - expected).abs().max().item<double>() /
         scales.of(parameter, dtype);
}

void expect_near_as_pytorch(const std::map<std::string, Tensor>& got,
                            const std::map<std::string, Tensor>& autograd,
                            const std::map<std::string, Tensor>& exact) {
  std::map<std::string, double> ours, pytorchs, length;
  for (const auto& [name, expected] : exact) {
    const std::string layer = LayerScales::layer_of(name);
    const auto squared = [&](const Tensor& tensor) {
      return tensor.to(at::kDouble).cpu().pow(2).sum().item<double>();
    };
    ours[layer] += squared(got.at(name).to(at::kDouble).cpu() - expected);
    pytorchs[layer] += squared(autograd.at(name) - expected);
    length[layer] += squared(expected);
  }
  for (const auto& [layer, error] : ours) {
    EXPECT_GT(pytorchs.at(layer), 0) << layer << ": the comparison is not in bf16";
    EXPECT_LE(std::sqrt(error), 1.5 * std::sqrt(pytorchs.at(layer)))
        << layer << ", whose gradient has the norm " << std::sqrt(length.at(layer));
  }
}

LanguageGolden language_golden(const fs::path& folder, const fs::path& model) {
  const SafetensorsFile file((folder / "golden.safetensors").string());
  LanguageGolden golden;
  golden.name = folder.filename().string();
  golden.folder = model.string();
  golden.config = read_config((model / "config.json").string());
  for (const auto& weights : fs::directory_iterator(model)) {
    const std::string name = weights.path().filename().string();
    if (name.rfind("model", 0) == 0 && weights.path().extension() == ".safetensors")
      golden.weight_files.push_back(weights.path().string());
  }
  golden.batch.inputs = golden_tensor(file, "input.input_ids");
  golden.mask = golden_tensor(file, "input.attention_mask");
  golden.batch.targets = golden_tensor(file, "input.labels");
  if (golden.config.task == Task::causal_lm) {
    const int64_t tokens = golden.batch.inputs.size(1);
    const Tensor next = at::full_like(golden.batch.targets, kIgnoreTarget);
    next.narrow(1, 0, tokens - 1).copy_(golden.batch.targets.narrow(1, 1, tokens - 1));
    golden.batch.targets = next;
  }
  golden.logits = golden_tensor(file, "expected.logits");
  golden.losses = golden_tensor(file, "expected.loss");
  golden.grad_sum = golden_tensors(file, "expected.grad_sum.");
  golden.squared_norms = golden_tensors(file, "expected.sq_norm.");
  golden.grad_clipped_sum = golden_tensors(file, "expected.grad_clipped_sum.");
  golden.norms = golden_tensor(file, "expected.norm");
  golden.clip_coefficients = golden_tensor(file, "expected.clip_coef");
  golden.clip_norm =
      nlohmann::json::parse(read_file((folder / "golden.json").string())).at("clip_norm");
  return golden;
}

std::vector<LanguageGolden> language_goldens() {
  std::vector<LanguageGolden> found;
  for (const fs::path& folder : golden_model_folders()) {
    const SafetensorsFile file((folder / "golden.safetensors").string());
    if (!file.find("input.input_ids")) continue;  // a model of images
    found.push_back(language_golden(folder, folder));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  EXPECT_FALSE(found.empty()) << "no language model among the goldens";
  return found;
}

Model LanguageGolden::model(const LanguageModelOptions& options) const {
  LanguageModelOptions own = options;
  own.tokens = batch.inputs.size(1);
  return language_model(config, own);
}

FlatParams::FlatParams(const Model& model, DType dtype, Device device) {
  int64_t end = 0;
  for (const ParamShape& param : model.params) {
    if (!param.joined) end = (end + 7) / 8 * 8;
    offsets_.push_back(end);
    dims_.push_back(param.dims);
    end += param.numel();
  }
  // what is read before it is written shows
  flat_ = at::full({end}, 1e6, at::TensorOptions(dtype).device(device));
  for (size_t i = 0; i < model.params.size(); ++i)
    views_.push_back(flat_.narrow(0, offsets_[i], model.params[i].numel()).view(dims_[i]));
}

Tensor FlatParams::joined(ParamId first, int count) const {
  int64_t numel = 0;
  for (int i = 0; i < count; ++i) numel += views_[static_cast<size_t>(first + i)].numel();
  const Tensor flat = flat_.narrow(0, offsets_[static_cast<size_t>(first)], numel);
  const auto& dims = dims_[static_cast<size_t>(first)];
  return dims.size() == 1 ? flat
                          : flat.view({-1, views_[static_cast<size_t>(first)].numel() / dims[0]});
}

SummedSink::Target FlatParams::target() const {
  return [this](ParamId id, int64_t first, int64_t count) {
    return flat_.narrow(0, offsets_[static_cast<size_t>(id)] + first, count);
  };
}

std::vector<int64_t> FlatParams::numel() const {
  std::vector<int64_t> list;
  for (const Tensor& view : views_) list.push_back(view.numel());
  return list;
}

HandRun run_by_hand(const LanguageGolden& golden, const Model& model, const std::string& weights,
                    DType dtype, Device device) {
  const InitialWeights initial = load_weights(weights, golden.config, model.params);
  EXPECT_TRUE(initial.notices.empty());
  return run_by_hand(golden, model, initial, dtype, device);
}

HandRun run_by_hand(const LanguageGolden& golden, const Model& model, const InitialWeights& initial,
                    DType dtype, Device device) {
  const FlatParams params(model, dtype, device), grads(model, sum_dtype(dtype), device);
  for (size_t i = 0; i < model.params.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    EXPECT_TRUE(initial.fill(id, 0, params[id].view({-1})));
  }
  const Batch batch = {golden.batch.inputs.to(device), golden.batch.targets.to(device)};
  SummedSink sink(grads.numel(), /*accumulate=*/false, grads.target());
  sink.begin_body();

  HandRun run;
  std::vector<Tape> tapes(model.blocks.size());
  Flow flow{batch.inputs};
  for (size_t b = 0; b < model.blocks.size(); ++b)
    flow = model.blocks[b]->forward(params, flow, tapes[b]);
  if (const auto* head = dynamic_cast<const LmHead*>(model.loss.get()))
    run.logits = head->logits(params, flow).cpu();
  if (const auto* head = dynamic_cast<const Classifier*>(model.loss.get()))
    run.logits = head->logits(params, flow).cpu();
  if (const auto* head = dynamic_cast<const EncoderClassifier*>(model.loss.get()))
    run.logits = head->logits(params, flow).cpu();
  run.losses = model.loss->evaluate(params, flow, batch).losses.cpu();
  const Tensor loss_sum = at::zeros({1}, at::TensorOptions(at::kDouble).device(device));
  Flow grad = model.loss->run(params, flow, batch, loss_sum, sink);
  for (size_t b = model.blocks.size(); b-- > 0 && grad.hidden.defined();)
    grad = model.blocks[b]->backward(params, grad, tapes[b], sink, b > 0);
  run.loss = loss_sum.cpu().item<double>();
  for (size_t i = 0; i < model.params.size(); ++i)
    run.grads[model.params[i].name] = grads[static_cast<ParamId>(i)].cpu().to(at::kDouble);
  return run;
}

}  // namespace veil
