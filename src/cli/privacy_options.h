// The options of a private run, and the plan that they make.
#pragma once

#include "cli/clip_options.h"
#include "privacy/plan.h"

namespace veil {

struct PrivacyChoice {
  ClipChoice clip_choice;
  std::optional<double> epsilon, sigma, delta;
  std::optional<double> clip_norm;
  privacy::ClipFunction clip = privacy::ClipFunction::abadi;
  std::vector<double> layer_norms;
  double quantile = 0.5, clip_rate = 0.2;
  std::optional<double> count_noise;
  privacy::SamplerKind sampler = privacy::SamplerKind::poisson;
  privacy::PrivacyUnit unit = privacy::PrivacyUnit::sample;
  privacy::AccountantKind accountant = privacy::AccountantKind::pld;
  NoiseGenerator rng = NoiseGenerator::secure;
  std::optional<int64_t> data_size;
  std::string secret_file;

  bool is_private() const { return clip_choice.mode != Mode::no_dp; }
};

void add_privacy_options(Options& options, PrivacyChoice& choice);

// Settles whether the run is private at all: any of --epsilon, --sigma and a --mode but no_dp says so. What can be wrong with the words alone is a UserError.
void settle_privacy(const Options& options, PrivacyChoice& choice);

// What is known of the run beside its options.
struct PrivateSetting {
  int64_t samples = 0;  // that were counted
  bool one_sequence_a_document = false;
  double expected_batch = 0;     // E
  std::optional<int64_t> steps;  // or epochs
  double epochs = 0;
  int layers = 1;  // of ClipFunction::per_layer
  double slack = 0;
};
privacy::PrivacyPlan private_plan(const PrivacyChoice& choice, const PrivateSetting& setting);

}  // namespace veil
