// Runs a schedule step by step. Its parts: the units' buffers, what is done with gradients, the
// running of rows, their clock, their capture in graphs, and the state that outlives a step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/stored_state.h"
#include "profile/timeline.h"

namespace veil {

class Gradients;
class RowClock;
class RowRunner;
class StepGraphs;

class Executor {
 public:
  // `data` holds this rank's samples of a logical batch, micro_batches * batch of them. The model
  // must outlive the executor. Parameters are initialised by the model's rules, each rank its own
  // shard.
  Executor(const Model& model, int64_t batch, const ExecutorOptions& options, Device device,
           Batch data, Ranks ranks);
  ~Executor();

  const Schedule& schedule() const { return context_.schedule; }
  const ModelShape& shape() const { return context_.shape; }
  Device device() const { return context_.device; }

  // Captures the parts in graphs if that is requested and possible. Changes no parameter. Call
  // once, before the first step.
  void prepare();
  // "on", or why not.
  const std::string& graph_state() const;

  // The samples of the next logical batch, as the constructor's; copied before the next step
  // begins. With step.varying any number of whole micro-batches, none included; they are on CPU and
  // are read until the step is done.
  void load(const Batch& samples);
  // Issues one step; on a GPU it returns before the step is done. If the schedule defers its update,
  // that is run by the next step, or by whatever reads parameters or changes them.
  void step(double learning_rate);
  // The sum of this rank's losses in the last step. Waits for it.
  double loss_sum();
  // The norm of the last step's gradient, the mean over the logical batch, before any scaling;
  // needs step.grad_norm. Waits for it.
  double grad_norm();
  // Of a private step: the next one's C (of ClipFunction::adaptive), or C_l.
  void set_clip_norms(const std::vector<double>& clip_norms);
  // Leaves the noise out of the private steps from here on, and nothing else; false brings it back.
  // For checks of the mechanism: what such a step releases is not private.
  void silence_noise(bool silent);
  // What this rank saw in the last private step. Not private. Waits for it.
  struct ClipFacts {
    // those that count, and of them those whose gradient is not finite
    int64_t samples = 0, bad_samples = 0;
    // 1/2 for each good sample whose norm is at most C, -1/2 for each other
    double clip_count = 0;
  };
  ClipFacts clip_facts();
  // Of the last micro-batch: squared norms [params, batch], and coefficients [layers, batch]. Not
  // private.
  Tensor squared_norms();
  Tensor coefficients();
  void wait();
  // A timed moment at the end of what was issued so far.
  Marker mark();
  // For numbers besides the step's (losses, peaks); null in a world of one.
  Communicator* communicator() { return context_.ranks.reduce.get(); }

  // Row times of the last step; needs time_rows. Waits for it.
  StepTime read_times();
  // The rows of the last step that ran row by row (the capture, with graphs); needs watch_memory.
  const std::vector<ObservedRow>& memory_rows() const;

  // Losses of one micro-batch of this rank's samples with the parameters as they are; changes
  // nothing. Every rank must call it.
  Evaluation evaluate(const Batch& samples);

  // A parameter, whole, on CPU. Every rank must call it.
  Tensor parameter(ParamId id);

  // What a checkpoint holds, by unit (engine/stored_state.h).
  using StatePiece = veil::StatePiece;
  using ReadState = veil::ReadState;
  std::vector<StatePiece> state();
  void restore(int64_t steps, const ReadState& read);
  int64_t steps() const { return steps_; }
  // Gradient buffers as the update will read them, for tests: runs prologue and body, keeps the
  // gradient, drops the rest. Every rank must call it.
  std::vector<Tensor> gradients();

 private:
  void run(Part part, int micro_batch);
  // Whether kept gradients are summed now that this micro-batch has run.
  bool sums_after(int micro_batch) const;
  // Runs an update that waits for the next step. Every rank must call it.
  void finish();
  void expect_noised() const;
  // A unit's gradient, summed over samples and ranks, from what the body left behind.
  Tensor summed_gradient(int unit);

  ExecutorContext context_;
  std::unique_ptr<RowClock> clock_;  // none: rows are not timed
  UnitBuffers units_;
  std::unique_ptr<Gradients> gradients_;
  std::unique_ptr<RowRunner> rows_;
  std::unique_ptr<StepGraphs> graphs_;
  int64_t steps_ = 0;
  bool unfinished_ = false;  // the last step's tail has not run yet
};

}  // namespace veil
