#include "models/dit.h"

#include <cmath>

#include "base/error.h"
#include "nn/diffusion_block.h"
#include "nn/diffusion_embedding.h"
#include "nn/noise_head.h"

namespace veil {
namespace {

// Lists the parameters while the blocks are put together. They start as published, but for the
// positions, which are learnt here.
class DitParameters {
 public:
  DitParameters(Model& model, const DitConfig& config) : model_(model), config_(config) {}

  enum class Start { xavier, normal, zero };
  ParamId add(const std::string& name, std::vector<int64_t> dims, Init init) {
    model_.params.push_back({name, std::move(dims), init});
    return static_cast<ParamId>(model_.params.size()) - 1;
  }
  ParamId table(const std::string& name, std::vector<int64_t> dims) {
    return add(name, std::move(dims), normal(0.02));
  }
  Projection map(const std::string& name, int64_t in, int64_t out, Start start) {
    return map(name, in, out, start, {out, in});
  }
  Projection map(const std::string& name, int64_t in, int64_t out, Start start,
                 std::vector<int64_t> dims) {
    Projection projection;
    projection.in = in;
    projection.out = out;
    const double half_width = std::sqrt(6.0 / static_cast<double>(in + out));
    projection.weight = add(name + ".weight", std::move(dims),
                            start == Start::xavier   ? Init{Init::Kind::uniform, half_width}
                            : start == Start::normal ? normal(0.02)
                                                     : normal(config_.zero_deviation));
    projection.bias =
        add(name + ".bias", {out}, normal(start == Start::zero ? config_.zero_deviation : 0));
    return projection;
  }
  Modulation modulation(const std::string& name, int64_t pieces) {
    const int64_t width = config_.hidden;
    return {map(name + ".adaLN_modulation.1", width, pieces * width, Start::zero), width, pieces};
  }

 private:
  static Init normal(double deviation) {
    return deviation == 0 ? Init{Init::Kind::constant, 0} : Init{Init::Kind::normal, deviation};
  }
  Model& model_;
  const DitConfig& config_;
};

}  // namespace

Model dit_model(const DitConfig& config, AttentionKind attention) {
  using Start = DitParameters::Start;
  check_config(config, "DiT");
  const PatchGrid grid{config.image_size, config.patch, config.channels};
  const int64_t hidden = config.hidden, feed = config.feed_ratio * hidden;
  Model model;
  model.name = "dit";
  model.input.dims = model.target.dims = {config.channels, config.image_size, config.image_size};
  model.condition = DataShape{{}, at::kLong, config.timesteps * config.labels()};

  DitParameters parameters(model, config);
  DiffusionEmbedding::Layers first;
  first.grid = grid;
  first.positions = parameters.table("pos_embed", {1, grid.tokens(), hidden});
  first.patches = parameters.map("x_embedder.proj", grid.patch_numel(), hidden, Start::xavier,
                                 {hidden, config.channels, config.patch, config.patch});
  first.time_in = parameters.map("t_embedder.mlp.0", config.time_features, hidden, Start::normal);
  first.time_out = parameters.map("t_embedder.mlp.2", hidden, hidden, Start::normal);
  first.table = parameters.table("y_embedder.embedding_table.weight", {config.labels(), hidden});
  first.labels = config.labels();
  first.hidden = hidden;
  model.blocks.push_back(std::make_unique<DiffusionEmbedding>(first));

  for (int64_t i = 0; i < config.layers; ++i) {
    DiffusionLayers layers;
    layers.name = fmt::format("blocks.{}", i);
    layers.qkv = parameters.map(layers.name + ".attn.qkv", hidden, 3 * hidden, Start::xavier);
    layers.attention_out =
        parameters.map(layers.name + ".attn.proj", hidden, hidden, Start::xavier);
    layers.up = parameters.map(layers.name + ".mlp.fc1", hidden, feed, Start::xavier);
    layers.down = parameters.map(layers.name + ".mlp.fc2", feed, hidden, Start::xavier);
    layers.modulation = parameters.modulation(layers.name, 6);
    layers.attention = {.heads = config.heads,
                        .kv_heads = config.heads,
                        .head_dim = hidden / config.heads,
                        .causal = false,
                        .kind = attention,
                        .rope = {}};
    layers.hidden = hidden;
    layers.feed = feed;
    layers.tokens = grid.tokens();
    layers.epsilon = config.norm_epsilon;
    model.blocks.push_back(std::make_unique<DiffusionBlock>(std::move(layers)));
  }

  NoiseHead::Layers last;
  last.grid = grid;
  last.linear = parameters.map("final_layer.linear", hidden, grid.patch_numel(), Start::zero);
  last.modulation = parameters.modulation("final_layer", 2);
  last.hidden = hidden;
  last.epsilon = config.norm_epsilon;
  model.loss = std::make_unique<NoiseHead>(last);
  return model;
}

}  // namespace veil
