// The lanes other than compute: collectives, and copies between memories.
#pragma once

#include <vector>

#include "engine/clip_state.h"
#include "engine/unit_buffers.h"

namespace veil {

class Lanes {
 public:
  // `knobs`: the step's (kernels/update_rule.h), of which the squared norm is summed over ranks.
  // `clip`: null if the step is not private.
  Lanes(const ExecutorContext& context, UnitBuffers& units, Tensor knobs, const ClipState* clip);
  // Issues an operation from the current stream; it is done when the last of these is. With `timed`
  // copies have markers (collectives always, as their communicator is set).
  std::vector<PendingPtr> run(const Op& op, bool timed);

 private:
  PendingPtr copy(const Op& op, bool timed);

  const ExecutorContext& context_;
  UnitBuffers& units_;
  Tensor knobs_;
  const ClipState* clip_;
};

}  // namespace veil
