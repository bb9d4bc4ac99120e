// A block: the piece of a model that runs, is checkpointed and is timed as one. Forward and
// backward are explicit; there is no autograd here.
#pragma once

#include <string>
#include <vector>

#include "nn/grad_sink.h"
#include "nn/scores.h"
#include "nn/tape.h"
#include "tensor/device.h"

namespace veil {

// The parameters as views of gathered memory, in the compute type.
class Params {
 public:
  virtual ~Params() = default;
  virtual const Tensor& operator[](ParamId id) const = 0;
  // `count` parameters that are joined (ParamShape::joined), one under the other: [all their rows,
  // columns].
  virtual Tensor joined(ParamId first, int count) const = 0;
};

// One report that backward will make to the sink, for the sink's own temporaries.
struct Report {
  ParamId param = 0;
  int64_t numel = 0;  // elements that it covers
  enum class By { linear, embedding, direct } by = By::linear;
  bool repeated = false;  // comes in several pieces of the batch, which add up
  int64_t samples = 0, tokens = 1;
  // of a product's gradient: [rows, columns], joined parameters together
  int64_t rows = 0, columns = 0;
  // the block's own then: temporaries, and what is made of the gradient to return
  int64_t live_bytes = 0;
  int64_t held_bytes = 0;   // likewise if every report is held
  int64_t later_bytes = 0;  // the most of it from then on; 0: what lives then
};

// What a block costs for a given batch and type: what the schedule must know of it without running
// it.
struct BlockShape {
  std::string name;
  std::vector<ParamId> params;
  std::vector<Report> reports;
  int64_t output_bytes = 0;             // what it adds to the flow
  int64_t output_grad_bytes = 0;        // the gradient of its output; 0: as large as the output
  int64_t input_grad_bytes = 0;         // the gradient that its backward makes; 0: none
  int64_t saved_bytes = 0;              // the tape's own tensors, without the kept ones
  int64_t kept_bytes = 0;               // what selective checkpointing keeps of it (Tape::kept)
  int64_t passing_bytes = 0;            // of both, what no report holds; 0: not told apart
  bool keeps_input = false;             // backward reads the input flow
  bool keeps_output = false;            // backward reads the output flow
  int64_t forward_scratch_bytes = 0;    // largest sum of temporaries inside forward
  int64_t late_scratch_bytes = 0;       // of a loss: likewise, after its last report of a product
  int64_t recompute_scratch_bytes = 0;  // likewise inside recompute, if that skips the output
  int64_t backward_scratch_bytes = 0;   // likewise in backward, without what the sink takes
  int64_t booked_bytes = 0;  // what its reports hold besides tape and gradient of its output
  // as backward_scratch_bytes, if the reports are held; without what they hold
  int64_t book_scratch_bytes = 0;
  bool reports_output_grad = true;  // its reports hold the gradient of its output
  // recompute() makes neither the output nor forward's temporaries
  bool recompute_skips_output = false;
  // What attention that holds whole matrices of scores has at once, with what the tape holds by
  // then, beyond the whole tape; and what is made in front of attention, beyond the saved part.
  int64_t score_scratch_bytes = 0, early_scratch_bytes = 0;
  Scores scores;
  int64_t forward_flops = 0;
  int64_t repeated_flops = 0;  // of those, what is made a second time to save memory
};

class Block {
 public:
  virtual ~Block() = default;
  // Which parameters are trained, by ParamId, and whether any that the blocks before this one read
  // is. A block that is not told takes all for trained.
  virtual void set_trained(const std::vector<bool>& /*trained*/, bool /*below*/) {}
  // Fills `tape`, its input and output included if the shape keeps them.
  virtual Flow forward(const Params& params, const Flow& in, Tape& tape) const = 0;
  // Fills `tape` again from the input and what was kept, with the same bits. The output is made
  // if the shape keeps it, and returned if it was made.
  virtual Flow recompute(const Params& params, const Flow& in, Tape& tape) const {
    return forward(params, in, tape);
  }
  // Reads the tape, reports every parameter to the sink, and returns the gradient of the input (an
  // undefined tensor unless `needs_input_grad`). `grad` may be overwritten.
  virtual Flow backward(const Params& params, Flow grad, const Tape& tape, GradSink& sink,
                        bool needs_input_grad) const = 0;
  virtual BlockShape shape(int64_t batch, DType compute, bool on_gpu) const = 0;
};

struct Evaluation {
  Tensor losses;  // fp64 [batch]
  // bool [batch]: whether the most likely label is the right one; undefined if there are no
  // labels
  Tensor correct;
};

// The end of a model: per-sample losses and the gradient of their sum with respect to the last
// flow, in one operation.
class Loss {
 public:
  virtual ~Loss() = default;
  // As Block::set_trained.
  virtual void set_trained(const std::vector<bool>& /*trained*/, bool /*below*/) {}
  // Adds the sum of the samples' losses to `loss_sum` (fp64, one element). Returns the gradient of
  // the sum of the losses; it may be undefined if nothing below is trained.
  virtual Flow run(const Params& params, const Flow& last, const Batch& batch,
                   const Tensor& loss_sum, GradSink& sink) const = 0;
  // Without a gradient.
  virtual Evaluation evaluate(const Params& params, const Flow& last, const Batch& batch) const = 0;
  // output_bytes: the gradient it makes; 0: none.
  virtual BlockShape shape(int64_t batch, DType compute, bool on_gpu) const = 0;
};

}  // namespace veil
