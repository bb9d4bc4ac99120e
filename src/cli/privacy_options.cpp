#include "cli/privacy_options.h"

#include <cmath>

#include "base/error.h"

namespace veil {

using privacy::ClipFunction;
using privacy::SamplerKind;

void add_privacy_options(Options& options, PrivacyChoice& c) {
  options.section("private training: --epsilon or --sigma asks for it");
  options.add(
      "epsilon", c.epsilon,
      {.aliases = {"target_epsilon"}, .help = "the budget; without --sigma the noise that it asks for is found"});
  options.add(
      "sigma", c.sigma,
      {.aliases = {"noise_multiplier"}, .help = "noise multiplier; 0 clips without noise, which is not private"});
  options.add("delta", c.delta,
              {.aliases = {"target_delta"}, .help = "chance that epsilon does not hold; far below 1 / samples"});
  options.add(
      "clip-norm", c.clip_norm,
      {.help = "C, to which each sample's gradient is clipped; 1 if not given. In a private run --max-grad-norm "
               "means the same"});
  options.add("clip", c.clip,
              {.aliases = {"clip_function"},
               .help = "min(1, C / norm), C / norm, a C for each layer, or a C that follows a quantile of the norms"});
  options.add("layer-norms", c.layer_norms,
              {.help = "of per-layer: each layer's C, in order; equal ones that make --clip-norm if not given"});
  options.add("clip-quantile", c.quantile, {.help = "of adaptive: part of the samples whose norm shall lie below C"});
  options.add("clip-rate", c.clip_rate, {.help = "of adaptive: how fast C moves"});
  options.add("count-noise", c.count_noise,
              {.help = "of adaptive: deviation of the noise on the count that moves C; if not given a twentieth of the "
                       "batch, and no less than sigma"});
  options.add("sampler", c.sampler,
              {.help = "each sample by a secret draw of its own, or shuffled batches of one size, which cost more"});
  options.add("privacy-unit", c.unit, {.help = "what is protected: each sequence (sample), or each document"});
  options.add("accountant", c.accountant, {.help = "what computes epsilon; gdp cannot decide a budget"});
  options.add("rng", c.rng, {.help = "of the noise; philox is for comparisons of speed"});
  options.add("data-size", c.data_size,
              {.aliases = {"dataset_size"},
               .help = "samples as the public knows them; counted, and so declared public, if not given",
               .minimum = 1});
  options.add("secret-file", c.secret_file,
              {.help = "32 random bytes or 64 hexadecimal digits that only you can read: a run that can be repeated; "
                       "drawn and kept with the run if not given",
               .value = "FILE"});
  add_clip_options(options, c.clip_choice);
}

void settle_privacy(const Options& options, PrivacyChoice& c) {
  ClipChoice& choice = c.clip_choice;
  const bool asked = c.epsilon || c.sigma;
  if (asked && choice.mode == Mode::no_dp) {
    if (options.given("mode"))
      user_error("--mode no_dp with --{}: allowed is a private mode, as auto", c.epsilon ? "epsilon" : "sigma");
    choice.mode = Mode::automatic;
  }
  if (!c.is_private()) {
    for (const char* name : {"delta", "clip-norm", "clip", "layer-norms", "clip-quantile", "clip-rate", "count-noise",
                             "sampler", "privacy-unit", "accountant", "rng", "data-size", "secret-file", "rule",
                             "pass-plan", "tile-size", "memory-budget"}) {
      if (options.given(name)) user_error("--{}: it belongs to a private run; pass --epsilon or --sigma too", name);
    }
    return;
  }
  if (!asked) user_error("--mode {}: a private run needs noise; pass --epsilon or --sigma", name_of(choice.mode));
  if (c.sigma && !(*c.sigma >= 0)) user_error("--sigma {}: allowed is 0 or more", *c.sigma);
  if (c.epsilon && !(*c.epsilon > 0)) user_error("--epsilon {}: allowed is more than 0", *c.epsilon);
  if (!c.delta) user_error("--delta is missing: the chance that epsilon does not hold, far below 1 / samples, as 1e-6");
  privacy::check_delta(*c.delta);
  if (c.clip_norm && !(*c.clip_norm > 0)) user_error("--clip-norm {}: allowed is more than 0", *c.clip_norm);
  if (c.clip != ClipFunction::per_layer && !c.layer_norms.empty())
    user_error("--layer-norms: they go with --clip per-layer");
  if (c.clip == ClipFunction::per_layer && !c.layer_norms.empty() && c.clip_norm)
    user_error("--layer-norms and --clip-norm: one of them is allowed");
  for (const char* name : {"clip-quantile", "clip-rate", "count-noise"}) {
    if (options.given(name) && c.clip != ClipFunction::adaptive) user_error("--{}: it goes with --clip adaptive", name);
  }
}

privacy::PrivacyPlan private_plan(const PrivacyChoice& c, const PrivateSetting& setting) {
  privacy::PlanRequest request;
  request.sampler = c.sampler;
  request.unit = c.unit;
  request.one_sequence_a_document = setting.one_sequence_a_document;
  request.data_size = c.data_size.value_or(setting.samples);
  request.size_from_data = !c.data_size;
  request.expected_batch = setting.expected_batch;
  if (setting.expected_batch > static_cast<double>(setting.samples))
    user_error(
        "the data has {} samples, fewer than the expected batch of {}: give more, or a smaller --total-batch-size",
        setting.samples, setting.expected_batch);
  if (c.sampler == SamplerKind::shuffled && c.data_size && *c.data_size != setting.samples) {
    user_error(
        "--data-size {} with shuffled batches of {} samples: allowed is their number, for it decides how often a "
        "sample comes; leave it out, or take --sampler poisson",
        *c.data_size, setting.samples);
  }
  request.clip = c.clip;
  request.clip_norm = c.clip_norm.value_or(1);
  if (c.clip == ClipFunction::per_layer) {
    request.layer_norms =
        c.layer_norms.empty() ? privacy::equal_layer_norms(request.clip_norm, setting.layers) : c.layer_norms;
    if (static_cast<int>(request.layer_norms.size()) != setting.layers)
      user_error("--layer-norms: {} are given, the model has {} layers that are clipped apart",
                 request.layer_norms.size(), setting.layers);
    request.clip_norm = 0;
  }
  request.slack = setting.slack;
  request.sigma = c.sigma;
  request.epsilon = c.epsilon;
  request.delta = *c.delta;
  request.accountant = c.accountant;
  if (setting.steps) {
    request.steps = setting.steps;
  } else {
    const double q = setting.expected_batch / static_cast<double>(request.data_size);
    const int64_t an_epoch = request.data_size / std::max<int64_t>(1, static_cast<int64_t>(setting.expected_batch));
    request.steps = c.sampler == SamplerKind::poisson
                        ? privacy::steps_of_epochs(setting.epochs, q)
                        : std::max<int64_t>(1, std::llround(setting.epochs * static_cast<double>(an_epoch)));
  }
  if (c.clip == ClipFunction::adaptive) {
    request.adaptive = {.quantile = c.quantile,
                        .rate = c.clip_rate,
                        .count_deviation = c.count_noise.value_or(setting.expected_batch / 20)};
    // The usual twentieth of a small batch would leave the gradients no budget.
    if (!c.count_noise) {
      const double sigma = c.sigma ? *c.sigma : [&] {
        privacy::PlanRequest flat = request;
        flat.clip = ClipFunction::abadi;
        return make_plan(flat).sigma();
      }();
      request.adaptive.count_deviation = std::max(request.adaptive.count_deviation, sigma);
    }
  }
  return make_plan(request);
}

}  // namespace veil
