// Training until a number of steps: data in, steps, evaluation on held-out samples, checkpoints.
// Every rank runs one; rank 0 is heard.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "comm/wait_clock.h"
#include "engine/executor.h"
#include "privacy/mechanism.h"
#include "train/feed.h"
#include "train/weight_average.h"

namespace veil {

// What makes a run private, besides the executor's PrivateStep. Mechanism and keys are the same on
// every rank.
struct PrivateTraining {
  explicit PrivateTraining(privacy::Mechanism of) : mechanism(std::move(of)) {}
  privacy::Mechanism mechanism;
  NoiseGenerator generator = NoiseGenerator::secure;
  ChaChaKey sampling = {}, clip_count = {};  // derived for their domains
  std::shared_ptr<const data::Users> users;  // who own the samples, if they are the unit
  uint64_t draws = 0;     // seed of what samples draw for themselves (train/feed.h): secret
  double clip_norm = 0;   // the next step's C; moves under ClipFunction::adaptive
  int64_t last_step = 0;  // the budget allows none behind it
  std::function<void(int64_t step)> before_step;  // returns when the step is counted on disk
  std::function<double(int64_t step)> epsilon;    // spent after it
  // For the checkpoint of this step, in addition to the trainer's own state.
  std::function<nlohmann::ordered_json(int64_t step)> state;
  // Its files are in this folder, which is about to become the checkpoint.
  std::function<void(int64_t step, const std::string& folder)> checkpoint_written;
};

struct TrainOptions {
  int64_t steps = 0;                                  // in all, those before a resume included
  std::function<double(int64_t step)> learning_rate;  // of a step, counted from 1
  uint64_t seed = 0;                                  // of the samples' order and of what they draw
  WeightAverage* average = nullptr;  // follows each step and goes into the checkpoints; null: none
  int64_t evaluate_every = 0;        // steps; 0: at the end only
  int64_t evaluation_samples = 0;    // 0: all held-out ones
  int64_t checkpoint_every = 0;      // steps; 0: at the end only
  int keep_checkpoints = 2;
  std::string folder;               // of the run; "" writes no checkpoints
  nlohmann::ordered_json settings;  // stored with each checkpoint
  nlohmann::ordered_json base;      // as well: the statement of the model it began with, if any
  std::string frozen;               // as well: a digest of the frozen parameters, if any
  // How long the loader, and GPUs that communicate by NCCL, may take before the run ends.
  WaitLimits waits;
  std::function<bool()> stop;  // asked after each step: a checkpoint is written and the run ends
  std::optional<PrivateTraining> privacy;
};

// Of a private step. Epsilon and C are covered by the guarantee; the rest is not private.
struct PrivateLine {
  double epsilon = 0, clip_norm = 0;
  int64_t samples = 0, bad_samples = 0;
  double below_clip_norm = 0;  // part of the good samples
};

struct StepLine {
  int64_t step = 0, epoch = 0;
  // mean over the logical batch; of a private step over the drawn samples, and NaN if there are
  // none
  double loss = 0;
  double grad_norm = 0, learning_rate = 0;
  double seconds = 0, tokens_per_second = 0, waited_for_data_seconds = 0;
  int64_t peak_bytes = 0;  // of this rank
  std::optional<PrivateLine> privacy;
};

struct EvaluationLine {
  int64_t step = 0, samples = 0;
  int64_t tokens = 0;       // that were predicted; 0: none, the loss is no likelihood
  double loss = 0;          // mean over tokens, or over samples that have labels or are images
  bool of_average = false;  // of the weights' moving average, not of the weights
  std::optional<double> accuracy;  // of classification
  double perplexity() const;
};

struct TrainEvents {
  std::function<void(const StepLine&)> on_step;
  std::function<void(const EvaluationLine&)> on_evaluation;
  // A checkpoint is about to be written: what was told of its steps is to be on disk before it.
  std::function<void()> before_checkpoint;
  std::function<void(int64_t step)> on_checkpoint;
};

class Trainer {
 public:
  // `held_out` may be null. The executor is prepared and, on a resume, restored; `start` is where
  // its data continues.
  Trainer(Executor& executor, std::shared_ptr<const Feed> samples,
          std::shared_ptr<const Feed> held_out, TrainOptions options, TrainEvents events);
  // False if it was stopped before the last step. A private run's last step is the last that its
  // budget allows, if that comes first.
  bool run(data::Position start);
  // Of what the run will leave: the weights' average if one is kept. What held-out samples draw
  // is the same each time, and nothing of the run changes.
  EvaluationLine evaluate();
  data::LoaderStatistics loader_statistics() const { return loader_statistics_; }

 private:
  void checkpoint(const data::Position& next);
  std::vector<double> sum_over_ranks(const std::vector<double>& values);
  int64_t rank_samples() const;
  int64_t last_step() const;
  std::unique_ptr<data::Order> make_order() const;
  void finish_private_step(StepLine& line, double epsilon, double samples, double bad_samples,
                           double clip_count);

  Executor& executor_;
  std::shared_ptr<const Feed> samples_, held_out_;
  TrainOptions options_;
  TrainEvents events_;
  data::LoaderStatistics loader_statistics_;
};

}  // namespace veil
