#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "models/dit.h"

namespace veil {
namespace {

constexpr int64_t kMostSize = int64_t{1} << 14, kMostHidden = int64_t{1} << 16,
                  kMostClasses = int64_t{1} << 24, kMostSteps = int64_t{1} << 20;

struct Preset {
  std::string name;
  DitConfig config;
};

DitConfig sized(int64_t layers, int64_t hidden, int64_t heads, int64_t patch) {
  DitConfig config;
  config.layers = layers;
  config.hidden = hidden;
  config.heads = heads;
  config.patch = patch;
  return config;
}

DitConfig small(int64_t layers, int64_t hidden, int64_t heads, int64_t patch, int64_t classes) {
  DitConfig config = sized(layers, hidden, heads, patch);
  config.image_size = 16;
  config.classes = classes;
  return config;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = [] {
    std::vector<Preset> list;
    for (const int64_t patch : {2, 4, 8}) {
      list.push_back({fmt::format("dit-s/{}", patch), sized(12, 384, 6, patch)});
      list.push_back({fmt::format("dit-b/{}", patch), sized(12, 768, 12, patch)});
      list.push_back({fmt::format("dit-l/{}", patch), sized(24, 1024, 16, patch)});
      list.push_back({fmt::format("dit-xl/{}", patch), sized(28, 1152, 16, patch)});
    }
    list.push_back({"dit-tiny", small(2, 32, 4, 4, 5)});
    list.push_back({"dit-shapes", small(4, 96, 4, 4, 4)});
    return list;
  }();
  return table;
}

std::string plain(const std::string& name) {
  std::string text = canonical(name);
  for (char& letter : text) {
    if (letter == '/') letter = '-';
  }
  return text;
}

}  // namespace

std::optional<DitConfig> dit_preset(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (plain(preset.name) == plain(name)) return preset.config;
  }
  return std::nullopt;
}

const std::vector<std::string>& dit_preset_names() {
  static const std::vector<std::string> found = [] {
    std::vector<std::string> list;
    for (const Preset& preset : presets()) list.push_back(preset.name);
    return list;
  }();
  return found;
}

void check_config(const DitConfig& config, const std::string& where) {
  auto expect = [&](const char* what, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      user_error("{}: {} {}: allowed is {} to {}", where, what, value, least, most);
  };
  expect("`image_size`", config.image_size, 1, kMostSize);
  expect("`patch_size`", config.patch, 1, config.image_size);
  expect("`channels`", config.channels, 1, 64);
  expect("`classes`", config.classes, 1, kMostClasses);
  expect("`hidden_dim`", config.hidden, 1, kMostHidden);
  expect("`layers`", config.layers, 1, kMostLayers);
  expect("`heads`", config.heads, 1, config.hidden);
  expect("feed-forward ratio", config.feed_ratio, 1, 64);
  expect("timestep features", config.time_features, 2, kMostHidden);
  expect("timesteps", config.timesteps, 2, kMostSteps);
  if (config.image_size % config.patch != 0)
    user_error(
        "{}: image size {} is not a multiple of the patch {}; pass `image_size` {}, or another "
        "`patch_size`",
        where, config.image_size, config.patch, config.image_size / config.patch * config.patch);
  if (config.hidden % config.heads != 0)
    user_error(
        "{}: hidden size {} is not a multiple of the {} heads; pass another `heads` or "
        "`hidden_dim`",
        where, config.hidden, config.heads);
  if (config.time_features % 2 != 0)
    user_error("{}: {} timestep features: an even number is needed", where, config.time_features);
  if (!(config.beta_begin > 0 && config.beta_begin <= config.beta_end && config.beta_end < 1))
    user_error("{}: betas from {} to {}: allowed is 0 < begin <= end < 1", where, config.beta_begin,
               config.beta_end);
  // A sampler divides by the roots of both, in fp32.
  const NoiseSchedule schedule = noise_schedule(config);
  if (schedule.kept.front() >= 1 || schedule.kept.back() < std::numeric_limits<float>::min())
    user_error(
        "{}: betas from {} to {} in {} timesteps leave no noise in the first or no image in the "
        "last; allowed are others or fewer timesteps",
        where, config.beta_begin, config.beta_end, config.timesteps);
}

bool is_dit_config(const nlohmann::ordered_json& json) {
  const auto found = json.find("model_type");
  return found != json.end() && found->is_string() && found->get<std::string>() == "dit";
}

DitConfig parse_dit_config(const nlohmann::ordered_json& json, const std::string& where) {
  if (!json.is_object()) user_error("{}: not an object", where);
  const ConfigFields fields(json, where);
  if (fields.text("model_type") != "dit")
    user_error("{}: model_type '{}' is not a diffusion transformer's; allowed is dit", where,
               printable(fields.text("model_type")));
  DitConfig config;
  config.image_size = fields.whole("image_size", 1, kMostSize);
  config.patch = fields.whole("patch_size", 1, kMostSize);
  config.channels = fields.whole("in_channels", 1, 64, 3);
  config.hidden = fields.whole("hidden_size", 1, kMostHidden);
  config.layers = fields.whole("depth", 1, kMostLayers);
  config.heads = fields.whole("num_heads", 1, kMostHidden);
  config.classes = fields.whole("num_classes", 1, kMostClasses);
  config.time_features = fields.whole("frequency_embedding_size", 2, kMostHidden, 256);
  config.norm_epsilon = fields.real("layer_norm_eps", 0, 1, 1e-6);
  const double ratio = fields.real("mlp_ratio", 1, 64, 4);
  config.feed_ratio = static_cast<int64_t>(ratio);
  if (static_cast<double>(config.feed_ratio) != ratio)
    user_error("{}: mlp_ratio {}: a whole number is needed", where, ratio);
  if (fields.flag("learn_sigma", false) ||
      fields.whole("out_channels", 1, 128, config.channels) != config.channels)
    user_error("{}: a model that learns the noise's variance (learn_sigma) is not supported",
               where);
  if (fields.has("diffusion")) {
    if (!fields.at("diffusion").is_object()) user_error("{}: diffusion is not an object", where);
    const std::string inner = where + ": diffusion";
    const ConfigFields diffusion(fields.at("diffusion"), inner);
    const std::string schedule = diffusion.text("beta_schedule");
    if (!schedule.empty() && schedule != "linear")
      user_error("{}: beta_schedule '{}' is not supported; allowed is linear", inner,
                 printable(schedule));
    config.timesteps = diffusion.whole("num_steps", 2, kMostSteps, config.timesteps);
    config.beta_begin = diffusion.real("beta_start", 0, 1, config.beta_begin);
    config.beta_end = diffusion.real("beta_end", 0, 1, config.beta_end);
  }
  check_config(config, where);
  return config;
}

nlohmann::ordered_json config_json(const DitConfig& config) {
  return {{"architectures", {"DiT"}},
          {"model_type", "dit"},
          {"image_size", config.image_size},
          {"patch_size", config.patch},
          {"in_channels", config.channels},
          {"out_channels", config.channels},
          {"hidden_size", config.hidden},
          {"depth", config.layers},
          {"num_heads", config.heads},
          {"mlp_ratio", static_cast<double>(config.feed_ratio)},
          {"num_classes", config.classes},
          {"frequency_embedding_size", config.time_features},
          {"learn_sigma", false},
          {"layer_norm_eps", config.norm_epsilon},
          {"torch_dtype", "float32"},
          {"diffusion",
           {{"num_steps", config.timesteps},
            {"beta_schedule", "linear"},
            {"beta_start", config.beta_begin},
            {"beta_end", config.beta_end}}}};
}

double NoiseSchedule::signal(int64_t timestep) const {
  return std::sqrt(kept[static_cast<size_t>(timestep)]);
}

double NoiseSchedule::noise(int64_t timestep) const {
  return std::sqrt(1 - kept[static_cast<size_t>(timestep)]);
}

NoiseSchedule noise_schedule(const DitConfig& config) {
  NoiseSchedule schedule;
  double product = 1;
  for (int64_t t = 0; t < config.timesteps; ++t) {
    const double part = static_cast<double>(t) / static_cast<double>(config.timesteps - 1);
    product *= 1 - (config.beta_begin + part * (config.beta_end - config.beta_begin));
    schedule.kept.push_back(product);
  }
  return schedule;
}

}  // namespace veil
