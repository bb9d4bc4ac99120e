// What an executor is made from, and what its parts share.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/names.h"
#include "comm/communicator.h"
#include "models/shape.h"
#include "optim/optimizer.h"
#include "privacy/clip_method.h"
#include "profile/memory.h"
#include "step/schedule.h"
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
  bool time_rows = false;     // markers around every row
  bool time_reports = false;  // and, inside, around every report of a parameter; needs time_rows
  // the bytes of every row, held against the allocator's own count
  bool watch_memory = false;
  std::optional<privacy::PrivateStep> privacy;  // needs step.clip
  // the update is scaled down to this norm; needs step.grad_norm. 0: never
  double max_grad_norm = 0;
  // Fills `out` with a parameter's stored elements from `first` on and says true; false leaves them
  // to the model's own rule. Unset: always the rule.
  std::function<bool(ParamId, int64_t first, const Tensor& out)> initial;
};

// What a row left behind, by Space.
struct ObservedRow {
  Part part;
  int op;
  memory::RowBytes bytes[kSpaces];
};

// Fixed from the executor's making on. The model must outlive it.
struct ExecutorContext {
  ExecutorContext(const Model& model, int64_t batch, const ExecutorOptions& options, Device device,
                  Ranks ranks);

  const Model& model;
  ExecutorOptions options;  // options.step as the schedule has completed it
  Device device;
  ModelShape shape;
  Ranks ranks;
  Stream compute, copy;
  Schedule schedule;
  bool some_frozen;  // parameters that are not trained

  const UnitLayout& unit(int u) const { return schedule.layout.units[static_cast<size_t>(u)]; }
  // This rank's shard of a unit's flat tensor, which may be the shard already.
  Tensor own_part(const Tensor& flat, int unit) const;
  // Where in its unit a flat tensor begins that holds the whole unit or this rank's shard of it.
  int64_t first_of(const Tensor& flat, int unit) const;
};

}  // namespace veil
