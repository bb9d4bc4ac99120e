// config.json of a model: a language model's, and a diffusion transformer's. What was accepted must
// make a model, though none is built here: sizes, rotary frequencies, the schedule of noise.
#include <cmath>

#include "base/json.h"
#include "fuzz/fuzz.h"
#include "models/dit.h"
#include "models/family.h"

namespace {

using namespace veil;
using Json = nlohmann::ordered_json;

// A million names of labels take seconds under the sanitizers.
constexpr int64_t kMostWrittenLabels = 1 << 16;

void check_frequencies(const LanguageConfig& config, int64_t layer, int64_t tokens) {
  const RopeFrequencies frequencies = rope_frequencies(config, layer, tokens);
  fuzz::require(frequencies.count >= 0 && frequencies.count <= RopeFrequencies::kMost &&
                    2 * frequencies.count <= config.head_dim,
                "no more pairs turn than a head has");
  const bool turns = config.rope_theta > 0 && !layer_is(config.still, layer);
  fuzz::require(turns == (frequencies.count > 0), "what has rotary positions turns");
  fuzz::require(std::isfinite(frequencies.scale) && frequencies.scale > 0,
                "turned values are multiplied by a positive number");
  for (int j = 0; j < frequencies.count; ++j) {
    const double angle = frequencies.value[j] * static_cast<double>(tokens);
    fuzz::require(frequencies.value[j] > 0 && std::isfinite(angle), "angles are numbers");
  }
}

void check_language_config(const Json& json) {
  const LanguageConfig config = parse_config(json, "config.json");
  for (const int64_t size :
       {config.hidden, config.layers, config.heads, config.kv_heads, config.head_dim, config.feed,
        config.vocabulary, config.positions, config.labels, config.token_types})
    fuzz::require(size > 0, "sizes are positive");
  fuzz::require(config.heads % config.kv_heads == 0, "heads share keys evenly");
  fuzz::require(config.padding_id < config.vocabulary, "padding is a token");
  fuzz::require(
      config.norm_epsilon >= 0 && config.initial_deviation >= 0 && config.score_scalar >= 0,
      "what has a root taken is not negative");
  for (const std::vector<bool>& layers : {config.sliding, config.still})
    fuzz::require(layers.empty() || std::ssize(layers) == config.layers,
                  "kinds of layers are of each layer");
  fuzz::require(config.sliding.empty() || config.window > 0, "a window has positions");
  const LanguageFamily& family = family_of(config);
  fuzz::require(!family.only_classifies || config.task == Task::sequence_classification,
                "what only classifies is a classifier");
  for (const int64_t layer : {int64_t{0}, config.layers / 2, config.layers - 1}) {
    for (const int64_t tokens : {int64_t{1}, config.positions, 10 * config.positions})
      check_frequencies(config, layer, tokens);
  }
  if (config.labels > kMostWrittenLabels) return;
  const Json written = config_json(config);
  const LanguageConfig again = parse_config(written, "config.json");
  fuzz::require(again.hidden == config.hidden && again.heads == config.heads &&
                    again.kv_heads == config.kv_heads && again.head_dim == config.head_dim &&
                    again.feed == config.feed && again.positions == config.positions &&
                    again.task == config.task && again.tied == config.tied &&
                    again.padding_id == config.padding_id &&
                    (again.task == Task::causal_lm || again.labels == config.labels),
                "what was read can be written and read");
  fuzz::require(again.sliding == config.sliding && again.still == config.still &&
                    again.rope_theta == config.rope_theta &&
                    again.rope_scaling.kind == config.rope_scaling.kind,
                "so can positions and windows");
}

void check_diffusion_config(const Json& json) {
  const DitConfig config = parse_dit_config(json, "config.json");
  fuzz::require(config.tokens() > 0 && config.image_size % config.patch == 0,
                "patches fill an image");
  fuzz::require(config.hidden % config.heads == 0, "heads divide the width");
  fuzz::require(config.condition(config.timesteps - 1, config.classes) > 0,
                "timestep and class fit in a number");
  const NoiseSchedule schedule = noise_schedule(config);
  fuzz::require(std::ssize(schedule.kept) == config.timesteps, "each timestep has its noise");
  // The sampler divides by both.
  for (const int64_t step : {int64_t{0}, config.timesteps / 2, config.timesteps - 1})
    fuzz::require(static_cast<float>(schedule.signal(step)) > 0 && schedule.noise(step) > 0,
                  "an image has some signal and some noise");
  const Json written = config_json(config);
  fuzz::require(config_json(parse_dit_config(written, "config.json")) == written,
                "what was read can be written and read");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Json json = try_json<Json>(fuzz::text_of(data, size));
  fuzz::allow_user_error([&] {
    if (is_dit_config(json)) {
      check_diffusion_config(json);
    } else {
      check_language_config(json);
    }
  });
  return 0;
}
