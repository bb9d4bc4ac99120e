// Runs a schedule: allocates what the rows create, calls the blocks, moves data between ranks and memories, frees what the rows free.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "models/shape.h"
#include "nn/summed_sink.h"
#include "optim/optimizer.h"
#include "privacy/clip_plan.h"
#include "profile/ledger.h"
#include "profile/timeline.h"
#include "step/schedule.h"
#include "tensor/graph.h"
#include "tensor/stream.h"

namespace veil {

enum class GraphMode { automatic, on, off };
const NameTable<GraphMode>& names(GraphMode);

// A communicator for each lane that needs one; both empty in a world of one.
struct Ranks {
  std::unique_ptr<Communicator> gather, reduce;
  int rank() const { return gather ? gather->rank() : 0; }
};

struct ExecutorOptions {
  StepOptions step;
  OptimizerOptions optimizer;
  uint64_t seed = 0;
  GraphMode graph = GraphMode::automatic;
  bool time_rows = false;                       // markers around every row
  bool time_reports = false;                    // and, inside, around every report of a parameter; needs time_rows
  bool watch_memory = false;                    // a ledger entry for every row, held against the allocator's own count
  std::optional<privacy::PrivateStep> privacy;  // needs step.clip
  double max_grad_norm = 0;  // the update is scaled down to this norm; needs step.grad_norm. 0: never
  // Fills `out` with a parameter's stored elements from `first` on and says true; false leaves them to the model's own rule. Unset: always the rule.
  std::function<bool(ParamId, int64_t first, const Tensor& out)> initial;
};

// What a row left behind, by Space.
struct ObservedRow {
  Part part;
  int op;
  ledger::RowBytes bytes[kSpaces];
};

class Executor {
 public:
  // `data` holds this rank's samples of a logical batch, micro_batches * batch of them. The model must outlive the executor. Parameters are initialised
  // by the model's rules, each rank its own shard.
  Executor(const Model& model, int64_t batch, const ExecutorOptions& options, Device device, Batch data, Ranks ranks);
  ~Executor();

  const Schedule& schedule() const { return schedule_; }
  const ModelShape& shape() const { return shape_; }
  Device device() const { return device_; }

  // Captures the parts in graphs where that is asked for and possible. Changes no parameter. Call once, before the first step.
  void prepare();
  // "on", or why not.
  const std::string& graph_state() const { return graph_state_; }

  // The samples of the next logical batch, as the constructor's; copied before the next step begins. With step.varying any number of whole micro-batches, none included; they lie on CPU and
  // are read until the step is done.
  void load(const Batch& samples);
  // Issues one step; on a GPU it returns before the step is done.
  void step(double learning_rate);
  // The sum of this rank's losses in the last step. Waits for it.
  double loss_sum();
  // The norm of the last step's gradient, the mean over the logical batch, before any scaling; needs step.grad_norm. Waits for it.
  double grad_norm();
  // Of a private step: the next one's C (of ClipFunction::adaptive), or C_l.
  void set_clip_norms(const std::vector<double>& clip_norms);
  // What this rank saw in the last private step. Not private. Waits for it.
  struct ClipFacts {
    int64_t samples = 0, bad_samples = 0;  // those that count, and of them those whose gradient is not finite
    double clip_count = 0;  // privacy/clip.h: 1/2 for each good sample whose norm is at most C, -1/2 for each other
  };
  ClipFacts clip_facts();
  // Of the last micro-batch: squared norms [params, batch], and coefficients [layers, batch]. Not private.
  Tensor squared_norms();
  Tensor coefficients();
  void wait();
  // A timed moment at the end of what was issued so far.
  Marker mark();
  // For numbers beside the step (losses, peaks); null in a world of one.
  Communicator* communicator() { return ranks_.reduce.get(); }

  // Row times of the last step; needs time_rows. Waits for it.
  StepTime read_times();
  // The rows of the last step that ran row by row (the capture, with graphs); needs watch_memory.
  const std::vector<ObservedRow>& memory_rows() const { return observed_; }

  // Losses of one micro-batch of this rank's samples with the parameters as they are; changes nothing. Every rank must call it.
  Evaluation evaluate(const Batch& samples);

  // A parameter, whole, on CPU. Every rank must call it.
  Tensor parameter(ParamId id);

  // What a checkpoint holds: this rank's part of every unit, without padding. `first` is the model-wide index (shard/layout.h), which does not depend on world, strategy or wrap
  // policy, so any other run of the model can read it. Views of the executor's own memory.
  struct StatePiece {
    int64_t first;
    Tensor params;
    std::vector<Tensor> optimizer;
  };
  std::vector<StatePiece> state();
  // Fills params (kind -1) or optimizer state (kind 0, 1) from the model-wide index `first` on.
  using ReadState = std::function<void(int kind, int64_t first, const Tensor& out)>;
  void restore(int64_t steps, const ReadState& read);
  int64_t steps() const { return steps_; }
  // Gradient buffers as the update will read them, for tests: runs prologue and body, keeps the gradient, drops the rest. Every rank must call it.
  std::vector<Tensor> gradients();

 private:
  struct Unit;
  struct Timers;
  class UnitParams;
  class ClipState;
  class TrainedSink;
  class TimedSink;

  void allocate_resident();
  void initialise();
  void initialise(int unit, const Tensor& stored, int64_t first);
  void set_knobs(double learning_rate);
  void run_step();
  void run_part(Part part, int micro_batch, bool skip_load = false);
  Tensor place_of(const Tensor& flat, int unit, int64_t first, int64_t count) const;
  void run_op(Part part, int index, int micro_batch);
  void run_compute(const Op& op, int micro_batch);
  std::vector<PendingPtr> run_lane(const Op& op);
  PendingPtr run_copy(const Op& op);
  void cast_own_shard(int unit);
  void create(const Buffer& buffer);
  void free(const Buffer& buffer);
  void drop_step_buffers();
  void join(Part part);
  void begin_observing();
  void observe(Part part, int index);
  Tensor gradient_target(ParamId id, int64_t first, int64_t count);
  const Tensor& update_gradient(int unit) const;
  // What of a unit's flat tensor, or of this rank's shard of it, belongs to parameters that are trained; all of it where none is frozen.
  std::vector<Tensor> trained_parts(const Tensor& flat, int unit) const;
  double samples_in_step() const;
  double update_divisor() const;
  std::unique_ptr<ClipState> make_clip_state();
  GradSink& sink_for(const Op& op);
  void run_loss(const Op& op);
  void after_reports(const Op& op);
  void run_combine(const Op& op);
  void run_update(const Op& op);
  Tensor own_part(const Tensor& flat, int unit) const;
  Tensor& slot(const Buffer& buffer);
  DType dtype_of(BufferRole role) const;
  void capture();

  const Model& model_;
  ExecutorOptions options_;
  Device device_;
  ModelShape shape_;
  Schedule schedule_;
  Batch data_, input_;
  Ranks ranks_;
  Stream compute_, copy_;
  std::vector<Unit> units_;
  std::vector<Flow> flow_, flow_grad_;
  std::vector<Tape> tape_;
  std::unique_ptr<UnitParams> params_;
  std::unique_ptr<SummedSink> sink_;  // of a step that is not private
  std::unique_ptr<ClipState> clip_;   // of one that is
  UpdateRule rule_;
  int micro_batches_;          // of the step that runs
  bool second_pass_ = false;   // of a body that runs backward twice
  bool loss_counted_ = false;  // in this body
  Tensor knobs_;               // fp64 [8]: see kernels/clip_scale.h
  int64_t steps_ = 0;

  std::vector<std::vector<PendingPtr>> pending_;  // by row of the part that runs
  std::optional<Graph> graphs_[kParts];
  std::string graph_state_ = "not prepared";
  std::unique_ptr<Timers> timers_;
  std::unique_ptr<TrainedSink> trained_sink_;  // none: no parameter is frozen
  Tensor no_noise_;                            // NoiseKnobs of 0, where parameters are updated one by one without noise
  std::unique_ptr<TimedSink> timed_sink_;      // none: reports are not timed
  std::vector<ObservedRow> observed_;
};

}  // namespace veil
