// How a step is spread over ranks and memory. Plain settings; the schedule's builder gives them
// meaning.
#pragma once

#include <cstdint>
#include <optional>

#include "base/names.h"
#include "optim/optimizer.h"
#include "privacy/clip_method.h"
#include "tensor/device.h"

namespace veil {

enum class Strategy { ddp, zero2, zero3 };
enum class BackwardPrefetch { pre, post, none };
enum class WrapPolicy { module, size, none };
enum class Checkpointing { none, selective, full };  // selective keeps attention outputs
enum class AccumulateIn {
  shard,
  // zero2 and zero3 with several micro-batches: reduce each time, or keep whole gradients and
  // reduce once
  whole
};

// What ranks send each other of gradients that are kept per sample.
enum class Exchange {
  automatic,  // the samples' gradients if they weigh no more than their sum
  kept,       // the samples' gradients, while backward runs
  sums        // clipped sums, when backward has ended
};

struct StepOptions {
  Strategy strategy = Strategy::zero3;
  int world = 1;
  int forward_prefetch = 0;  // units gathered ahead of the one that runs
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  WrapPolicy wrap = WrapPolicy::module;
  int64_t min_params = 100'000'000;  // WrapPolicy::size closes a unit at this many
  bool offload_params = false;
  bool offload_optimizer = false;
  Checkpointing checkpointing = Checkpointing::none;
  int micro_batches = 1;  // in a logical batch
  AccumulateIn accumulate_in = AccumulateIn::shard;
  Exchange exchange = Exchange::automatic;
  DType storage = at::kFloat;  // parameters between steps
  DType compute = at::kFloat;  // parameters and flow inside a step
  DType reduce = at::kFloat;   // gradients on the wire
  DType moments = at::kFloat;  // the optimizer's, if storage is not fp64: fp32 or bf16
  // reductions and updates run under the next step's forward, where a schedule can
  bool defer_update = false;
  // the whole gradient's norm is taken before the update, which may be scaled by it
  bool grad_norm = false;
  OptimizerKind optimizer = OptimizerKind::sgd;
  bool on_gpu = false;
  bool sample_products = false;             // the GPU has those of kernels/sample_products.h
  std::optional<privacy::ClipMethod> clip;  // a private step
  // the number of micro-batches changes from step to step, and may be none; micro_batches is a
  // typical one
  bool varying = false;

  // Sums over micro-batches are fp32 or better whatever the compute type.
  DType accumulate() const {
    return storage == at::kDouble || compute == at::kDouble ? at::kDouble : at::kFloat;
  }
  DType optimizer_state() const { return storage == at::kDouble ? at::kDouble : moments; }
};

const NameTable<Strategy>& names(Strategy);
const NameTable<BackwardPrefetch>& names(BackwardPrefetch);
const NameTable<WrapPolicy>& names(WrapPolicy);
const NameTable<Checkpointing>& names(Checkpointing);
const NameTable<AccumulateIn>& names(AccumulateIn);
const NameTable<Exchange>& names(Exchange);

}  // namespace veil
