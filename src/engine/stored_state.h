// What outlives a step: parameters and optimizer state, written at the start, read and written by
// checkpoints.
#pragma once

#include <functional>
#include <vector>

#include "engine/unit_buffers.h"

namespace veil {

// What a checkpoint holds: this rank's part of a trained unit, without padding. `first` is the model-wide
// index (shard/layout.h), which does not depend on world, strategy or wrap policy, so any other run
// of the model can read it. Views of the executor's own memory.
struct StatePiece {
  int64_t first;
  Tensor params;
  std::vector<Tensor> optimizer;
};
// Fills params (kind -1) or optimizer state (kind 0, 1) from the model-wide index `first` on.
using ReadState = std::function<void(int kind, int64_t first, const Tensor& out)>;

class StoredState {
 public:
  StoredState(const ExecutorContext& context, UnitBuffers& units)
      : context_(context), units_(units) {}

  // By the model's rules, or as options.initial says; each rank its own shard.
  void initialise();
  std::vector<StatePiece> pieces();
  void restore(const ReadState& read);
  // A parameter, whole, on CPU. Every rank must call it.
  Tensor parameter(ParamId id);

 private:
  void initialise(int unit, const Tensor& stored, int64_t first);
  // State `s` of the optimizer's `states`.
  Tensor optimizer_state(int unit, int s) const;
  Tensor own_elements(const Tensor& flat, int unit, int64_t first, int64_t count) const;

  const ExecutorContext& context_;
  UnitBuffers& units_;
};

}  // namespace veil
