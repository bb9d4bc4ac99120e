#include "models/presets.h"

#include "base/text.h"

namespace veil {
namespace {

// The tiny ones fit the byte tokenizer and train on a CPU in seconds.
constexpr int64_t kTinyVocabulary = 264, kTinyPositions = 1024, kTinyRotaryPositions = 8192;

struct Preset {
  std::string name;
  LanguageConfig config;
};

struct Size {
  int64_t hidden, layers, heads, kv_heads, head_dim, feed;
};

LanguageConfig sized(Family family, const Size& size) {
  LanguageConfig config;
  config.family = family;
  config.hidden = size.hidden;
  config.layers = size.layers;
  config.heads = size.heads;
  config.kv_heads = size.kv_heads;
  config.head_dim = size.head_dim;
  config.feed = size.feed;
  return config;
}

LanguageConfig llama3(const Size& size, double rope_factor, bool tied) {
  LanguageConfig config = sized(Family::llama, size);
  config.vocabulary = 128256;
  config.positions = 131072;
  config.rope_theta = 500000;
  config.rope_scaling = {RopeScaling::Kind::llama3, rope_factor, 1, 4, 8192};
  config.tied = tied;
  return config;
}

LanguageConfig qwen2(const Size& size, int64_t vocabulary, bool tied) {
  LanguageConfig config = sized(Family::qwen2, size);
  config.vocabulary = vocabulary;
  config.positions = 32768;
  config.rope_theta = 1e6;
  config.norm_epsilon = 1e-6;
  config.qkv_bias = true;
  config.tied = tied;
  return config;
}

LanguageConfig gpt2(int64_t hidden, int64_t layers, int64_t heads) {
  LanguageConfig config = sized(Family::gpt2, {hidden, layers, heads, heads, hidden / heads, 4 * hidden});
  config.vocabulary = 50257;
  config.positions = 1024;
  config.qkv_bias = true;
  config.tied = true;
  return config;
}

LanguageConfig tiny(LanguageConfig config) {
  config.vocabulary = kTinyVocabulary;
  config.positions = config.family == Family::gpt2 ? kTinyPositions : kTinyRotaryPositions;
  return config;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = {
      {"llama3.1-8b", llama3({4096, 32, 32, 8, 128, 14336}, 8, false)},
      {"llama3.2-1b", llama3({2048, 16, 32, 8, 64, 8192}, 32, true)},
      {"llama3.2-3b", llama3({3072, 28, 24, 8, 128, 8192}, 32, true)},
      {"qwen1.5-1.8b", qwen2({2048, 24, 16, 16, 128, 5504}, 151936, false)},
      {"qwen2.5-0.5b", qwen2({896, 24, 14, 2, 64, 4864}, 151936, true)},
      {"qwen2.5-1.5b", qwen2({1536, 28, 12, 2, 128, 8960}, 151936, true)},
      {"qwen2.5-7b", qwen2({3584, 28, 28, 4, 128, 18944}, 152064, false)},
      {"gpt2", gpt2(768, 12, 12)},
      {"gpt2-medium", gpt2(1024, 24, 16)},
      {"gpt2-large", gpt2(1280, 36, 20)},
      {"gpt2-xl", gpt2(1600, 48, 25)},
      {"llama-tiny", tiny(llama3({64, 2, 4, 2, 16, 176}, 8, false))},
      {"llama-tiny-tied", tiny(llama3({64, 2, 4, 2, 16, 176}, 8, true))},
      {"qwen2-tiny", tiny(qwen2({64, 2, 4, 2, 16, 176}, 0, false))},
      {"qwen2-tiny-tied", tiny(qwen2({64, 2, 4, 2, 16, 176}, 0, true))},
      {"gpt2-tiny", tiny(gpt2(64, 2, 4))},
  };
  return table;
}

}  // namespace

std::optional<LanguageConfig> preset_config(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (canonical(preset.name) == canonical(name)) return preset.config;
  }
  return std::nullopt;
}

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> found = [] {
    std::vector<std::string> list;
    for (const Preset& preset : presets()) list.push_back(preset.name);
    return list;
  }();
  return found;
}

std::optional<std::string> preset_of_hub_id(const std::string& id) {
  if (id.find('/') == std::string::npos) return {};
  const auto plain = [](std::string name) {
    name = canonical(name);
    for (const char* const suffix : {"-instruct", "-chat"}) {
      if (name.ends_with(suffix)) name.erase(name.size() - std::string(suffix).size());
    }
    std::erase(name, '-');
    return name;
  };
  const std::string wanted = plain(id.substr(id.find_last_of('/') + 1));
  for (const std::string& name : preset_names()) {
    if (plain(name) == wanted) return name;
  }
  return {};
}

}  // namespace veil
