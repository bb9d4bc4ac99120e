// The language models among the goldens: a folder each, discovered.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/family.h"
#include "models/load.h"
#include "models/safetensors.h"
#include "nn/summed_sink.h"

namespace veil {

// A tensor of a golden file, as int64 or fp64; all of those under a prefix, without it.
Tensor golden_tensor(const SafetensorsFile& file, const std::string& name);
std::map<std::string, Tensor> golden_tensors(const SafetensorsFile& file,
                                             const std::string& prefix);

// What an error in a parameter's gradient (or squared norm) is measured by. Rounding is relative to
// the terms of a sum, not to what is left of them where they cancel: in fp32 that is the largest
// value of the parameter's layer. In fp64, where rounding is far below it, the parameter's own
// largest value counts, unless that is below 1e-4 of the layer's.
class LayerScales {
 public:
  explicit LayerScales(const std::map<std::string, Tensor>& expected);
  double of(const std::string& parameter, DType dtype) const;
  // "model.layers.3" of "model.layers.3.mlp.up_proj.weight", "lm_head" of "lm_head.weight".
  static std::string layer_of(const std::string& parameter);

 private:
  std::map<std::string, double> own_, layer_;
};
// The largest difference by that measure.
double relative_to_layer(const Tensor& got, const Tensor& expected, const LayerScales& scales,
                         const std::string& parameter, DType dtype);

// Holds bf16 gradients against `exact`, layer by layer: at most 1.5 times as far off as PyTorch's
// own bf16 (`autograd`) is.
void expect_near_as_pytorch(const std::map<std::string, Tensor>& got,
                            const std::map<std::string, Tensor>& autograd,
                            const std::map<std::string, Tensor>& exact);

struct LanguageGolden {
  std::string name, folder;
  LanguageConfig config;
  // the same weights, under several spellings of their names
  std::vector<std::string> weight_files;
  Batch batch;            // targets shifted: what position t predicts
  Tensor mask;            // [batch, tokens], 1 where a token is real
  Tensor logits, losses;  // fp64
  std::map<std::string, Tensor> grad_sum;
  double clip_norm = 0;
  Tensor norms, clip_coefficients;                                // fp64 [batch]
  std::map<std::string, Tensor> squared_norms, grad_clipped_sum;  // by parameter
  // for the golden's own number of tokens
  Model model(const LanguageModelOptions& options = {}) const;
};
std::vector<LanguageGolden> language_goldens();
// What `folder` holds of the model in another one.
LanguageGolden language_golden(const std::filesystem::path& folder,
                               const std::filesystem::path& model);

// A model's parameters in one flat buffer, as its units would have them.
class FlatParams final : public Params {
 public:
  FlatParams(const Model& model, DType dtype, Device device);
  const Tensor& operator[](ParamId id) const override { return views_[static_cast<size_t>(id)]; }
  Tensor joined(ParamId first, int count) const override;
  SummedSink::Target target() const;  // of a buffer of gradients laid out alike
  std::vector<int64_t> numel() const;

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int64_t>> dims_;
  Tensor flat_;
  std::vector<Tensor> views_;
};

// The model's own blocks, one after the other.
struct HandRun {
  Tensor logits;    // [batch, tokens, vocabulary] or [batch, labels]
  double loss = 0;  // the sum
  Tensor losses;    // by the loss's own evaluation
  std::map<std::string, Tensor> grads;
};
HandRun run_by_hand(const LanguageGolden& golden, const Model& model, const std::string& weights,
                    DType dtype, Device device);
HandRun run_by_hand(const LanguageGolden& golden, const Model& model, const InitialWeights& initial,
                    DType dtype, Device device);

}  // namespace veil
