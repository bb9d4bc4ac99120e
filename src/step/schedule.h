// A training step as a value: a plain list of operations that can be printed, priced and run. It is
// built from a model's shape and the step's options; no tensor is needed. Three interpreters read
// it: the executor (engine/executor.h) runs it, the estimator (estimate/estimator.h) turns it into
// bytes, the printer shows it.
//
// Ordering and freeing
//   Operations are issued in the order of the list. A lane runs its own operations in that order.
//   An operation on another lane than compute starts after every compute operation issued before
//   it: the memory it is given may have been freed by any of them. Its `after` names the last of
//   those, and whatever else it waits for.
//   A compute operation waits for other lanes only as its `after` says.
//   Buffers are created when the operation that names them is issued, and freed at the end of a
//   compute operation that has waited for every user of them. No other lane frees. At the end of a
//   part all lanes have been waited for.
//   A turn begins and ends with the buffers that a body leaves behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/clip_coefficient.h"
#include "kernels/noise_values.h"
#include "models/shape.h"
#include "profile/memory.h"
#include "shard/layout.h"
#include "shard/options.h"

namespace veil {

enum class OpKind {
  load,
  zero,
  gather,
  forward,
  release,
  recompute,
  loss,
  backward,
  weight_grad,  // gradients of what was booked
  combine,
  reduce,
  exchange,      // kept gradients go to the ranks that update them; without a unit: coefficients
  norm,          // adds a unit's squared gradient to the step's
  coefficients,  // the update's scale from that norm, or every sample's clip coefficient
  update,
  copy_in,
  copy_out
};
// What becomes of the parameters' gradients that an operation reports.
enum class GradUse {
  none,
  sum,   // added up: not private
  norm,  // per-sample squared norms
  keep,  // kept per sample, and normed
  book,  // normed by a rule, and the report held
  clip,  // added up with the clip coefficients
};
const NameTable<GradUse>& names(GradUse);
enum class Lane { compute, gather, reduce, copy };
inline constexpr int kLanes = 4;

const NameTable<OpKind>& names(OpKind);
const NameTable<Lane>& names(Lane);

// What a buffer is, and whose (index: a unit, or for flow, flow_grad and tape a block; the loss
// counts as the block after the last).
enum class BufferRole {
  params,            // unit: the stored parameters, a shard or whole; resident
  optimizer,         // unit: the optimizer's state; resident
  whole,             // unit: gathered parameters in the compute type
  grad,              // unit: whole gradient of this rank
  wire,              // unit: gradient in the reduce type, if that is another one
  grad_shard,        // unit: summed gradient that the update reads
  reduced,           // unit: one micro-batch's summed shard, before it is added to grad_shard
  staged_params,     // unit: offloaded parameters on the device for their update
  staged_optimizer,  // unit: offloaded optimizer state on the device for its update
  flow,              // block: its output
  flow_grad,         // block: gradient of its output
  tape,              // block: what forward saved besides the flow
  kept,              // block: the part of it that selective checkpointing keeps
  reported,          // block: the part of it that its reports hold, if the rest is let go of before
  // unit: every sample's gradient; resident if several micro-batches' are summed at once
  sample_grads,
  received,  // unit: every rank's samples' gradients of what this rank updates
  booked,    // block: what its reports hold besides tape and flow
  // the head's gradient at the input tokens, until the tied table's embedding is reported
  tied_rows,
  norms,  // squared norms, coefficients and what clipping counts; resident
  data,   // the samples of a logical batch
  input,  // the micro-batch that runs
  knobs,  // learning rate, scale and step number, and the loss's sum
};
const NameTable<BufferRole>& names(BufferRole);
// Blocks make the flow and the tape themselves; the executor makes the rest.
inline bool made_by_blocks(BufferRole role) {
  return role == BufferRole::flow || role == BufferRole::flow_grad || role == BufferRole::tape ||
         role == BufferRole::kept || role == BufferRole::reported || role == BufferRole::booked ||
         role == BufferRole::tied_rows;
}

// What of a private step's state does not depend on the model.
struct ClipScalars {
  ClipTally tally;
  double discarded_loss;  // a loss that is evaluated twice counts once
  NoiseKnobs noise;
};
// BufferRole::norms: a block of doubles, the parameters' layers (int32) and which samples count
// (bytes). The functions below are places in the block, in doubles.
struct ClipStateLayout {
  int64_t params, samples, layers;
  // samples whose kept gradients are summed at once, if others than `samples`: several
  // micro-batches', or every rank's
  int64_t together;

  int64_t squared_norms() const { return 0; }                         // [params, samples]
  int64_t coefficients() const { return params * samples; }           // [layers, samples]
  int64_t kept() const { return coefficients() + layers * samples; }  // [layers, together]
  int64_t clip_norms() const { return kept() + layers * together; }   // [layers]
  int64_t scalars() const { return clip_norms() + layers; }           // a ClipScalars
  int64_t doubles() const { return scalars() + kScalars; }
  int64_t bytes() const {
    return doubles() * static_cast<int64_t>(sizeof(double)) +
           params * static_cast<int64_t>(sizeof(int32_t)) + samples;
  }

  static constexpr int64_t kScalars = sizeof(ClipScalars) / sizeof(double);
};
static_assert(sizeof(ClipScalars) == sizeof(ClipTally) + sizeof(double) + sizeof(NoiseKnobs));

struct Buffer {
  BufferRole role;
  int index;
  int64_t bytes;
  Category category;
  Space space;
  bool operator==(const Buffer&) const = default;
};

struct Op {
  OpKind kind;
  Lane lane = Lane::compute;
  int unit = -1;   // gather, release, combine, reduce, exchange, update, copies
  int block = -1;  // forward, recompute, loss, backward, weight_grad
  GradUse use = GradUse::none;
  int layer = -1;               // coefficients: of this clip layer; -1: of all
  std::vector<int> after = {};  // earlier operations of the same part
  std::vector<Buffer> creates = {}, frees = {};
  int64_t scratch_bytes = 0;  // temporaries that live inside the operation only
  // likewise, but gone before the gradient for the next block is made
  int64_t sink_scratch_bytes = 0;
  std::string note = {};
};

enum class Part {
  prologue,
  body,
  sums,  // of what several bodies kept
  turn,  // one step's tail, and the next one's prologue and first body between its rows
  tail
};
inline constexpr int kParts = 5;
const NameTable<Part>& names(Part);

// How a unit's parameters come into reach of the blocks. Frozen ones never change: zero2 has nothing
// to refresh of them.
enum class ParamAccess {
  resident,   // stored whole in the compute type
  refreshed,  // stored whole, the peers' shards gathered in place once per step (zero2)
  per_step,   // gathered (or cast, or copied in) in the prologue and kept through the body
  per_use,    // gathered for each use and released (zero3)
};

struct Schedule {
  std::vector<Buffer> resident;  // from model creation to the end
  // prologue once per logical batch, body once per micro-batch, sums after some of them
  // (sums_after), tail once per logical batch; where the update is deferred, a turn takes the place
  // of a tail, the next prologue and its first body
  std::vector<Op> parts[kParts];

  // What the interpreters need besides the list.
  // How parameters are stored and reached; of frozen ones and of the others.
  struct Stored {
    ParamAccess access = ParamAccess::resident;
    bool whole = false;  // on every rank
    DType dtype = at::kFloat;
  };
  Stored trained, frozen;
  // The first block that has parameters to train: those before it run forward only. As many as
  // there are blocks: the loss alone has some.
  int lowest_trained = 0;
  bool reduces = false;            // there is a reduction over ranks
  bool accumulates_whole = false;  // whole gradients are summed over the micro-batches
  // The tail may wait for the next step: there is a turn. If it was asked for in vain: why.
  bool defers_update = false;
  std::string not_deferred;
  // Of a private step.
  privacy::ClipLayers layers;
  // book, by block: its tape is freed with its backward and made again before its weight gradients
  std::vector<bool> remakes_tape;
  // by block, of book and per_layer: all of it is frozen, and backward lets it go at once
  std::vector<bool> books_nothing;
  // keep: tables, and products with one token per sample in a block of many, are booked instead,
  // for a sample's gradient is much larger than what makes it.
  std::vector<bool> booked_param;
  // keep: where a parameter begins in its unit's row of a sample's kept gradients (-1: it is not
  // kept), and how long such a row is.
  std::vector<int64_t> kept_offset, kept_numel;
  // keep: so many micro-batches' gradients lie beside each other (ClipMethod::combine_every)
  int combine_every = 1;
  // keep, by unit: ranks send each other kept gradients, and each sums those of its own shard. No
  // unit: empty.
  std::vector<bool> exchanged;
  std::string not_exchanged;            // if it was asked for in vain: why
  ParamId tied_table = -1;              // an embedding's table that is also the loss's weight
  DType grad_dtype = at::kFloat;        // of BufferRole::grad
  DType grad_shard_dtype = at::kFloat;  // of BufferRole::grad_shard
  StepOptions options;
  Layout layout;

  bool exchanges() const { return !exchanged.empty(); }
  bool exchanges(int unit) const { return exchanges() && exchanged[static_cast<size_t>(unit)]; }
  const Stored& stored(int unit) const {
    return layout.units[static_cast<size_t>(unit)].frozen ? frozen : trained;
  }
  // Whether sums are made when this micro-batch of so many has run: there are enough, or no more.
  bool sums_after(int micro_batch, int micro_batches) const {
    return combine_every > 1 &&
           ((micro_batch + 1) % combine_every == 0 || micro_batch + 1 == micro_batches);
  }
  const std::vector<Op>& part(Part p) const { return parts[static_cast<int>(p)]; }
  std::vector<Op>& part(Part p) { return parts[static_cast<int>(p)]; }
};

inline ClipStateLayout clip_state_layout(const Schedule& schedule, const ModelShape& shape) {
  const int runs = schedule.exchanges() ? schedule.options.world : schedule.combine_every;
  return {static_cast<int64_t>(shape.params.size()), shape.batch, schedule.layers.count,
          runs > 1 ? runs * shape.batch : 0};
}

// What a rank sends each of the others in a collective of the gather or reduce lane.
int64_t message_bytes(const Op& op, const Schedule& schedule, int64_t batch);

// Throws UserError if options contradict each other.
Schedule build_schedule(const ModelShape& shape, const StepOptions& options);

// The step as a table: part, row, lane, operation, what it works on, what it waits for, buffers
// made and freed.
std::string print_schedule(const Schedule& schedule, const ModelShape& shape, bool buffers = false);

// "layers.3", or the unit's name: what an operation works on.
std::string op_target(const Op& op, const Schedule& schedule, const ModelShape& shape);

}  // namespace veil
