// From a run's configuration to the mechanism that is accounted for.
#pragma once

#include "privacy/journal.h"
#include "privacy/mechanism.h"
#include "run/config.h"

namespace veil {

// How much longer than the signal the noise of one step is: the expected norm of the noise on the
// mean gradient, sigma C sqrt(parameters) / E, over C, the most that the mean of clipped gradients
// can measure. Fine-tuning that worked lies below about 20 (docs/privacy.md).
double noise_to_signal(const privacy::Mechanism& mechanism, int64_t trained_parameters);
inline constexpr double kLoudNoise = 20;

// What is known of a private run besides its configuration.
struct PrivateSetting {
  int64_t samples = 0;   // that were counted
  bool users = false;    // they are users, of whom each contributes one sample
  int64_t multiple = 1;  // that a chosen maximum is rounded up to: micro-batches of all ranks
  int64_t canaries = 0;  // among them
  bool one_sequence_a_document = false;
  std::string unit_text;         // what a sample is, in words
  double expected_batch = 0;     // E
  std::optional<int64_t> steps;  // or epochs
  double epochs = 0;
  int layers = 1;  // of ClipFunction::per_layer
  double slack = 0;
  std::vector<privacy::BasePhase> base;  // earlier trainings that one figure covers as well
  privacy::DoneSteps done;               // of a run that continues
};
privacy::Mechanism private_mechanism(const PrivacyConfig& config, const PrivateSetting& setting);

// The noise of a run that continues. While its budget and its data stay, so does a sigma that was
// calibrated, and steps that were lost shorten the run. With another budget, or more steps, sigma
// is what the steps to come need after those that are done.
// `start`: what its checkpoint says; `stored`: what the checkpoint has of its privacy, with
// kTarget.
privacy::Mechanism continued_mechanism(const PrivacyConfig& config, const PrivateSetting& setting,
                                       const privacy::JournalStart& start,
                                       const nlohmann::json& stored);
// What a budget was given for, as checkpoints keep it.
inline constexpr const char* kTarget = "target";
nlohmann::json target_json(const PrivacyConfig& config, int64_t steps);

// The smallest expected batch, within 5 %, whose noise does not drown the signal in as many steps;
// nothing if all of the data is not enough. Where sigma follows from epsilon, it grows with the
// batch; so does an adaptive count's noise where it is not given.
std::optional<double> batch_that_is_heard(const privacy::Mechanism& mechanism,
                                          const PrivacyConfig& given, int64_t trained);

}  // namespace veil
