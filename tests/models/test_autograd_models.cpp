#include "models/test_autograd_models.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "models/load.h"
#include "nn/patches.h"

namespace veil {
namespace {

// A model's parameters as leaves of autograd.
class Leaves {
 public:
  Leaves(const Model& model, const InitialWeights& initial, DType dtype, Device device,
         double changed = 0)
      : flat_(model, dtype, device) {
    for (size_t i = 0; i < model.params.size(); ++i) {
      const auto id = static_cast<ParamId>(i);
      EXPECT_TRUE(initial.fill(id, 0, flat_[id].view({-1})));
      const std::string& name = model.params[i].name;
      names_.push_back(name);
      Tensor tensor = flat_[id].detach().clone();
      if (changed > 0) tensor *= 1 + changed * (2 * at::randint_like(tensor, 2) - 1);
      tensors_[name] = tensor.requires_grad_(true);
    }
  }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  const Tensor& operator[](const std::string& name) const { return tensors_.at(name); }

  NamedTensors gradients(const Tensor& loss) const {
    std::vector<Tensor> leaves;
    for (const std::string& name : names_) leaves.push_back(tensors_.at(name));
    const std::vector<Tensor> grads = torch::autograd::grad({loss}, leaves);
    NamedTensors found;
    for (size_t i = 0; i < names_.size(); ++i) found[names_[i]] = grads[i].cpu().to(at::kDouble);
    return found;
  }

 private:
  FlatParams flat_;
  std::vector<std::string> names_;
  NamedTensors tensors_;
};

Tensor linear(const Leaves& p, const std::string& name, const Tensor& x) {
  return p.has(name + ".bias") ? at::linear(x, p[name + ".weight"], p[name + ".bias"])
                               : at::linear(x, p[name + ".weight"]);
}

// GPT-2 stores weights [in, out].
Tensor conv1d(const Leaves& p, const std::string& name, const Tensor& x) {
  const Tensor out = at::addmm(p[name + ".bias"], x.reshape({-1, x.size(-1)}), p[name + ".weight"]);
  return out.view({x.size(0), x.size(1), -1});
}

// With an offset (Gemma) the weight, widened, is applied before the rounding.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon, double offset = 0) {
  const Tensor real = x.to(sum_dtype(x.scalar_type()));
  const Tensor scale = at::rsqrt(real.pow(2).mean(-1, /*keepdim=*/true) + epsilon);
  if (offset != 0)
    return (real * scale * (weight.to(real.scalar_type()) + offset)).to(x.scalar_type());
  return weight * (real * scale).to(x.scalar_type());
}

// q, k, v [batch, heads, tokens, head_dim]; back to [batch, tokens, heads * head_dim].
// `padding` [batch, 1, 1, tokens]: true for tokens that nobody sees.
struct Seen {
  bool causal = true;
  int64_t window = 0;
  double scalar = 0;
  Tensor padding = {};
};
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Seen& seen) {
  const int64_t tokens = q.size(2);
  Tensor scores = at::matmul(q, k.transpose(-2, -1)) /
                  std::sqrt(seen.scalar > 0 ? seen.scalar : static_cast<double>(q.size(-1)));
  if (seen.causal) {
    const Tensor ones = at::full({tokens, tokens}, 1.0, q.options().dtype(at::kFloat));
    Tensor hidden = ones.triu(1);
    if (seen.window > 0) hidden = hidden + ones.tril(-seen.window);
    scores = scores.masked_fill(hidden.to(at::kBool), -INFINITY);
  }
  if (seen.padding.defined()) scores = scores.masked_fill(seen.padding, -INFINITY);
  const Tensor weights = at::softmax(scores.to(sum_dtype(q.scalar_type())), -1).to(q.scalar_type());
  return at::matmul(weights, v).transpose(1, 2).reshape({q.size(0), tokens, -1});
}

Tensor heads_of(const Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
}

// Rotates halves of what turns: element j and j + count of a head are a pair.
Tensor rotate(const Tensor& x, const RopeFrequencies& rope) {
  if (rope.count == 0) return x;
  const int64_t tokens = x.size(2), pairs = rope.count;
  const auto wide = x.options().dtype(at::kDouble);
  const Tensor frequencies = at::tensor(std::vector<double>(rope.value, rope.value + pairs), wide);
  const Tensor angles = at::arange(tokens, wide).unsqueeze(1) * frequencies;
  const Tensor cos = (at::cos(angles) * rope.scale).to(x.scalar_type()),
               sin = (at::sin(angles) * rope.scale).to(x.scalar_type());
  const Tensor a = x.narrow(-1, 0, pairs), b = x.narrow(-1, pairs, pairs),
               rest = x.narrow(-1, 2 * pairs, x.size(-1) - 2 * pairs);
  return at::cat({a * cos - b * sin, b * cos + a * sin, rest}, -1);
}

// Llama and whatever is built like it; the parameters' names say what there is.
Tensor decoder_hidden(const LanguageConfig& c, const Leaves& p, const Tensor& ids) {
  const bool gemma = c.family == Family::gemma3;
  const auto norm = [&](const std::string& name, const Tensor& x) {
    return p.has(name + ".weight") ? rms_norm(x, p[name + ".weight"], c.norm_epsilon, gemma ? 1 : 0)
                                   : x;
  };
  // A norm of queries or keys: of each head, or of all together.
  const auto turned = [&](const std::string& name, const Tensor& x, int64_t heads,
                          const RopeFrequencies& rope) {
    const bool each = p.has(name + ".weight") && p[name + ".weight"].numel() == c.head_dim;
    return rotate(each ? norm(name, heads_of(x, heads)) : heads_of(norm(name, x), heads), rope);
  };
  const auto shared = [&](const Tensor& t) { return t.repeat_interleave(c.heads / c.kv_heads, 1); };
  const int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  Tensor x = at::embedding(p["model.embed_tokens.weight"], ids);
  if (gemma) x = x * at::full({}, std::sqrt(static_cast<double>(c.hidden)), x.options());
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("model.layers.{}", i), self = name + ".self_attn.",
                      mlp = name + ".mlp.";
    const RopeFrequencies rope = rope_frequencies(c, i, ids.size(1));
    const bool around = p.has(name + ".post_feedforward_layernorm.weight");
    const Tensor in = norm(name + ".input_layernorm", x);
    Tensor q, k, v;
    if (p.has(self + "qkv_proj.weight")) {
      const auto parts =
          linear(p, self + "qkv_proj", in).split_with_sizes({queries, keys, keys}, -1);
      q = parts[0], k = parts[1], v = parts[2];
    } else {
      q = linear(p, self + "q_proj", in), k = linear(p, self + "k_proj", in),
      v = linear(p, self + "v_proj", in);
    }
    const Seen seen = {.window = layer_is(c.sliding, i) ? c.window : 0, .scalar = c.score_scalar};
    const Tensor attended = linear(p, self + "o_proj",
                                   attend(turned(self + "q_norm", q, c.heads, rope),
                                          shared(turned(self + "k_norm", k, c.kv_heads, rope)),
                                          shared(heads_of(v, c.kv_heads)), seen));
    const std::string second = name + ".post_attention_layernorm";
    x = x + (around ? norm(second, attended) : attended);
    const Tensor middle = norm(around ? name + ".pre_feedforward_layernorm" : second, x);
    Tensor gate, up;
    if (p.has(mlp + "gate_up_proj.weight")) {
      const auto parts = linear(p, mlp + "gate_up_proj", middle).chunk(2, -1);
      gate = parts[0], up = parts[1];
    } else {
      gate = linear(p, mlp + "gate_proj", middle), up = linear(p, mlp + "up_proj", middle);
    }
    const Tensor opened = gemma ? at::gelu(gate, "tanh") : at::silu(gate);
    const Tensor fed = linear(p, mlp + "down_proj", opened * up);
    x = x + (around ? norm(name + ".post_feedforward_layernorm", fed) : fed);
  }
  return norm("model.norm", x);
}

// The logits of RoBERTa as a classifier.
Tensor roberta_logits(const LanguageConfig& c, const Leaves& p, const Tensor& ids) {
  const auto norm = [&](const std::string& name, const Tensor& x) {
    return at::layer_norm(x, {c.hidden}, p[name + ".weight"], p[name + ".bias"], c.norm_epsilon);
  };
  const std::string first = "roberta.embeddings.";
  const Tensor real = ids.ne(c.padding_id).to(at::kLong);
  const Tensor positions = real.cumsum(1) * real + c.padding_id;
  Tensor x = at::embedding(p[first + "word_embeddings.weight"], ids) +
             at::embedding(p[first + "position_embeddings.weight"], positions) +
             p[first + "token_type_embeddings.weight"][0];
  x = norm(first + "LayerNorm", x);
  const Seen seen = {.causal = false, .padding = real.eq(0).view({ids.size(0), 1, 1, ids.size(1)})};
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("roberta.encoder.layer.{}.", i),
                      self = name + "attention.self.";
    const auto heads = [&](const char* part) {
      return heads_of(linear(p, self + part, x), c.heads);
    };
    const Tensor attended = attend(heads("query"), heads("key"), heads("value"), seen);
    x = norm(name + "attention.output.LayerNorm",
             x + linear(p, name + "attention.output.dense", attended));
    const Tensor active = at::gelu(linear(p, name + "intermediate.dense", x));
    x = norm(name + "output.LayerNorm", x + linear(p, name + "output.dense", active));
  }
  const Tensor pooled = linear(p, "classifier.dense", x.select(1, 0)).tanh();
  return linear(p, "classifier.out_proj", pooled);
}

Tensor gpt2_hidden(const LanguageConfig& c, const Leaves& p, const Tensor& ids) {
  const auto norm = [&](const std::string& name, const Tensor& x) {
    return at::layer_norm(x, {c.hidden}, p[name + ".weight"], p[name + ".bias"], c.norm_epsilon);
  };
  Tensor x = at::embedding(p["transformer.wte.weight"], ids) +
             p["transformer.wpe.weight"].narrow(0, 0, ids.size(1));
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("transformer.h.{}", i);
    const std::vector<Tensor> qkv =
        conv1d(p, name + ".attn.c_attn", norm(name + ".ln_1", x)).chunk(3, -1);
    const Tensor seen =
        attend(heads_of(qkv[0], c.heads), heads_of(qkv[1], c.heads), heads_of(qkv[2], c.heads), {});
    x = x + conv1d(p, name + ".attn.c_proj", seen);
    const Tensor up = conv1d(p, name + ".mlp.c_fc", norm(name + ".ln_2", x));
    x = x + conv1d(p, name + ".mlp.c_proj", at::gelu(up, "tanh"));
  }
  return norm("transformer.ln_f", x);
}

// Every sample's mean over its own targets, summed over the samples.
Tensor summed_loss(const Tensor& logits, const Tensor& targets) {
  const Tensor counts = targets.ne(kIgnoreTarget);
  const Tensor chosen = at::log_softmax(logits.to(sum_dtype(logits.scalar_type())), -1)
                            .gather(-1, targets.clamp_min(0).unsqueeze(-1))
                            .squeeze(-1);
  const Tensor by_sample = -(chosen * counts);
  if (targets.dim() == 1) return by_sample.sum();
  return (by_sample.sum(1) / counts.sum(1).clamp_min(1)).sum();
}

}  // namespace

NamedTensors autograd_gradients(const LanguageGolden& golden, DType dtype, Device device,
                                double changed) {
  const LanguageConfig& c = golden.config;
  const Model model = golden.model();
  const Leaves p(model, load_weights(golden.weight_files.front(), c, model.params), dtype, device,
                 changed);
  const Tensor ids = golden.batch.inputs.to(device), targets = golden.batch.targets.to(device);
  if (c.family == Family::roberta)
    return p.gradients(summed_loss(roberta_logits(c, p, ids), targets));
  Tensor hidden = c.family == Family::gpt2 ? gpt2_hidden(c, p, ids) : decoder_hidden(c, p, ids);
  if (c.task == Task::sequence_classification) {
    const Tensor last = (golden.mask.to(device).to(at::kLong).sum(1) - 1).view({-1, 1, 1});
    hidden = hidden.gather(1, last.expand({-1, 1, hidden.size(-1)})).squeeze(1);
    return p.gradients(summed_loss(linear(p, "score", hidden), targets));
  }
  const char* table =
      c.family == Family::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
  const Tensor& head = p.has("lm_head.weight") ? p["lm_head.weight"] : p[table];
  return p.gradients(summed_loss(at::linear(hidden, head), targets));
}

double fp32_tolerance(const LanguageGolden& golden) {
  const LayerScales scales(golden.grad_sum);
  at::manual_seed(1);
  double moved = 0;
  for (int draw = 0; draw < 4; ++draw) {
    for (const auto& [name, grad] : autograd_gradients(golden, at::kDouble, cpu_device(), 0x1p-24))
      moved = std::max(moved,
                       relative_to_layer(grad, golden.grad_sum.at(name), scales, name, at::kFloat));
  }
  const auto results = 20.0 * static_cast<double>(golden.config.layers);
  return std::max(1e-5, std::sqrt(results) * moved);
}

NamedTensors autograd_gradients(const DiffusionGolden& golden, DType dtype, Device device) {
  const DitConfig& c = golden.config;
  const Model model = dit_model(c);
  const Leaves p(model, load_weights(golden.folder, model.params), dtype, device);
  const PatchGrid grid{c.image_size, c.patch, c.channels};
  const auto norm = [&](const Tensor& x, const Tensor& scale, const Tensor& shift) {
    return at::layer_norm(x, {c.hidden}, {}, {}, c.norm_epsilon) * (1 + scale.unsqueeze(1)) +
           shift.unsqueeze(1);
  };
  const auto modulation = [&](const std::string& name, const Tensor& condition, int64_t pieces) {
    return linear(p, name + ".adaLN_modulation.1", at::silu(condition)).chunk(pieces, -1);
  };

  const int64_t half = c.time_features / 2;
  const auto wide = at::TensorOptions(at::kDouble).device(device);
  const Tensor angles =
      golden.timesteps.to(device).to(at::kDouble).unsqueeze(1) *
      (at::arange(half, wide) * (-std::log(10000.0) / static_cast<double>(half))).exp();
  const Tensor features = at::cat({at::cos(angles), at::sin(angles)}, -1).to(dtype);
  const Tensor time =
      linear(p, "t_embedder.mlp.2", at::silu(linear(p, "t_embedder.mlp.0", features)));
  const Tensor condition =
      time + at::embedding(p["y_embedder.embedding_table.weight"], golden.labels.to(device));

  const Tensor patches = grid.channels_first(golden.batch.inputs.to(device)).to(dtype);
  Tensor x = at::linear(patches, p["x_embedder.proj.weight"].view({c.hidden, -1}),
                        p["x_embedder.proj.bias"]) +
             p["pos_embed"];
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string name = fmt::format("blocks.{}", i);
    const std::vector<Tensor> m = modulation(name, condition, 6);
    const std::vector<Tensor> qkv = linear(p, name + ".attn.qkv", norm(x, m[1], m[0])).chunk(3, -1);
    const Tensor seen = attend(heads_of(qkv[0], c.heads), heads_of(qkv[1], c.heads),
                               heads_of(qkv[2], c.heads), {.causal = false});
    x = x + m[2].unsqueeze(1) * linear(p, name + ".attn.proj", seen);
    const Tensor up = linear(p, name + ".mlp.fc1", norm(x, m[4], m[3]));
    x = x + m[5].unsqueeze(1) * linear(p, name + ".mlp.fc2", at::gelu(up, "tanh"));
  }
  const std::vector<Tensor> m = modulation("final_layer", condition, 2);
  const Tensor out = linear(p, "final_layer.linear", norm(x, m[1], m[0]));
  const DType real = sum_dtype(dtype);
  const Tensor noise = grid.channels_last(golden.batch.targets.to(device)).to(dtype).to(real);
  return p.gradients((out.to(real) - noise).pow(2).flatten(1).mean(1).sum());
}

}  // namespace veil
