// Training until a number of steps: data in, steps, evaluation on held-out samples, checkpoints. Every rank runs one; rank 0 is heard.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/batches.h"
#include "train/executor.h"

namespace veil {

struct TrainOptions {
  int64_t steps = 0;                                  // in all, those before a resume included
  std::function<double(int64_t step)> learning_rate;  // of a step, counted from 1
  uint64_t seed = 0;                                  // of the samples' order
  int64_t evaluate_every = 0;                         // steps; 0: at the end only
  int64_t evaluation_samples = 0;                     // 0: all held-out ones
  int64_t checkpoint_every = 0;                       // steps; 0: at the end only
  int keep_checkpoints = 2;
  std::string folder;               // of the run; "" writes no checkpoints
  nlohmann::ordered_json settings;  // stored with each checkpoint
  std::function<bool()> stop;       // asked after each step: a checkpoint is written and the run ends
};

struct StepLine {
  int64_t step = 0, epoch = 0;
  double loss = 0;  // mean over the logical batch
  double grad_norm = 0, learning_rate = 0;
  double seconds = 0, tokens_per_second = 0, waited_for_data_seconds = 0;
  int64_t peak_bytes = 0;  // of this rank
};

struct EvaluationLine {
  int64_t step = 0, samples = 0, tokens = 0;
  double loss = 0;                 // mean over tokens, or over samples that have labels
  std::optional<double> accuracy;  // of classification
  double perplexity() const;
};

struct TrainEvents {
  std::function<void(const StepLine&)> on_step;
  std::function<void(const EvaluationLine&)> on_evaluation;
  std::function<void(int64_t step)> on_checkpoint;
};

class Trainer {
 public:
  // `held_out` may be null. The executor is prepared and, on a resume, restored; `start` is where its data goes on.
  Trainer(Executor& executor, std::shared_ptr<const data::Samples> samples,
          std::shared_ptr<const data::Samples> held_out, TrainOptions options, TrainEvents events);
  // False where it was stopped before the last step.
  bool run(data::Position start);
  EvaluationLine evaluate();
  data::LoaderStatistics loader_statistics() const { return loader_statistics_; }

 private:
  void checkpoint(const data::Position& next);
  std::vector<double> sum_over_ranks(const std::vector<double>& values);
  int64_t rank_samples() const;

  Executor& executor_;
  std::shared_ptr<const data::Samples> samples_, held_out_;
  TrainOptions options_;
  TrainEvents events_;
  data::LoaderStatistics loader_statistics_;
};

// The samples as a model takes them: inputs [rows, tokens], targets [rows, tokens] or [rows] labels; on CPU.
Batch batch_tensors(const data::Batch& batch);

}  // namespace veil
