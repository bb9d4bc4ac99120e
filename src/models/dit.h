// The diffusion transformer (DiT) as a list of blocks. It predicts the noise in an image, given the
// timestep and a class. Parameters carry the published names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "models/shape.h"
#include "nn/attention.h"

namespace veil {

struct DitConfig {
  int64_t image_size = 256, patch = 8, channels = 3;
  int64_t classes = 1000;
  int64_t hidden = 1024, layers = 24, heads = 16;
  int64_t feed_ratio = 4;  // the feed-forward's width by the hidden states'
  int64_t time_features = 256;
  double norm_epsilon = 1e-6;
  // The noise: betas from begin to end in equal steps.
  int64_t timesteps = 1000;
  double beta_begin = 1e-4, beta_end = 0.02;
  // of what starts at zero (adaLN and the last layer), so that tests see it work
  double zero_deviation = 0;

  int64_t tokens() const { return (image_size / patch) * (image_size / patch); }
  int64_t labels() const { return classes + 1; }  // the last one: no class
  // Batch::conditions of one sample.
  int64_t condition(int64_t timestep, int64_t label) const { return timestep * labels() + label; }
};

// UserError, beginning with `where`, for numbers that do not go together: an image that patches do
// not fill, heads that do not divide, absurd sizes.
void check_config(const DitConfig& config, const std::string& where);

// config.json of a DiT ("model_type": "dit") and back. UserError as for a language model's.
bool is_dit_config(const nlohmann::ordered_json& json);
DitConfig parse_dit_config(const nlohmann::ordered_json& json, const std::string& where);
nlohmann::ordered_json config_json(const DitConfig& config);

// dit-s, dit-b, dit-l and dit-xl with patches of 2, 4 and 8 ("dit-l/8"), for 256 x 256 pixels in 3
// channels and 1000 classes; dit-tiny; dit-shapes, for the example. Any spelling of dit-l/8:
// DiT-L/8, dit_l_8.
std::optional<DitConfig> dit_preset(const std::string& name);
const std::vector<std::string>& dit_preset_names();

// Throws UserError as check_config does.
Model dit_model(const DitConfig& config, AttentionKind attention = AttentionKind::automatic);

// How much of an image is left after t steps of noise: betas in equal steps.
struct NoiseSchedule {
  std::vector<double> kept;  // by timestep: the product of 1 - beta up to and with it
  // x_t = signal(t) x_0 + noise(t) e, with e normal.
  double signal(int64_t timestep) const;
  double noise(int64_t timestep) const;
};
NoiseSchedule noise_schedule(const DitConfig& config);

}  // namespace veil
