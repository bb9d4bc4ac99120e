// The options of `veil train`.
#pragma once

#include "cli/experiment_options.h"
#include "cli/privacy_options.h"
#include "data/encode.h"
#include "data/samples.h"
#include "optim/learning_rate.h"

namespace veil {

inline constexpr const char* kShapes = "shapes";  // --data: images drawn by rule

struct TrainCommand {
  ExperimentOptions experiment;
  bool is_diffusion = false;  // what --model names: known once the options are checked
  std::string data, tokenizer;
  data::CorpusOptions corpus;
  data::SampleKind samples = data::SampleKind::packed;
  double held_out = 0.05;
  bool held_out_asked = false;  // not the default: then a part without images is an error
  int64_t shapes = 4096;
  int loader_threads = 2;
  double label_drop = 0.1;
  double average = 0;  // decay of the weights' moving average; 0: none is kept
  int64_t evaluation_samples = 0;
  std::optional<int64_t> steps;
  std::optional<double> epochs;
  LearningRateKind schedule = LearningRateKind::cosine;
  int64_t warmup_steps = 0;
  double minimum_lr_ratio = 0.1;
  double beta1 = 0.9, beta2 = 0.95, adam_epsilon = 1e-8, max_grad_norm = 1;
  PrivacyChoice privacy;
  std::optional<double> expected_batch;  // of a private run
  int64_t evaluate_every = 0, checkpoint_every = 0, log_every = 1;
  int keep_checkpoints = 2;
  std::string output_dir = "runs", resume, export_folder;
  std::string profile;                  // as it was asked for
  std::optional<int64_t> profile_step;  // and what that means
  bool profile_phases = false;          // the steps' mean phases are told at the end
  bool json = false;
};

void add_train_options(Options& options, TrainCommand& command);

// Defaults that depend on what --model names, beside those of use_language_defaults.
void use_train_defaults(const Options& options, TrainCommand& command);

// Everything that can be wrong with the words alone; settles what depends on the model's task.
void check_train_options(TrainCommand& command, const Options& options);

// A resumed run keeps what decides its steps: model, samples, order, optimizer and the logical batch. UserError that names the option that differs from the newest checkpoint's; strategy, ranks, micro-batches, device
// and the like may change. A folder without a checkpoint allows everything, except that private and plain training do not mix in it.
void check_resumed_options(const std::string& run_folder, const Options& options, int64_t global_batch,
                           bool is_private);

}  // namespace veil
