// What the executor keeps between rows. Included by the executor's own files only.
#pragma once

#include "train/executor.h"

namespace veil {

// A unit's buffers; undefined tensors where the schedule has not created them.
struct Executor::Unit {
  Tensor params, optimizer;  // resident
  Tensor whole, grad, wire, grad_shard, reduced, sample_grads, staged_params, staged_optimizer;
};

// Parameters as views of whatever holds them at the moment.
class Executor::UnitParams final : public Params {
 public:
  UnitParams(const ModelShape& shape, const Layout& layout);
  // The flat buffer of a unit has come (or, undefined, gone).
  void bind(int unit, const Tensor& flat);
  const Tensor& operator[](ParamId id) const override;
  Tensor joined(ParamId first, int count) const override;

 private:
  const ModelShape& shape_;
  const Layout& layout_;
  std::vector<Tensor> views_;
  std::vector<Tensor> flat_;  // by unit
};

// Markers of one step's rows. Rows of a captured part are recorded again at each replay.
struct Executor::Timers {
  struct Row {
    Marker begin, end;                // compute rows
    std::vector<PendingPtr> pending;  // rows of other lanes
  };
  Marker step_begin, step_end;
  std::vector<std::vector<Row>> parts[kParts];  // [part][micro-batch][row]
  Row& row(Part part, int micro_batch, int index, const Schedule& schedule);
};

}  // namespace veil
