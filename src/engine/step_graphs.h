// A step's parts as graphs, if that is requested and possible; row by row if it is not.
#pragma once

#include <string>
#include <vector>

#include "engine/row_runner.h"
#include "tensor/stream.h"

namespace veil {

class StepGraphs {
 public:
  // `clock`: null if rows are not timed.
  StepGraphs(const ExecutorContext& context, RowRunner& rows, Gradients& gradients, RowClock* clock)
      : context_(context), rows_(rows), gradients_(gradients), clock_(clock) {}

  // Captures the parts, or says why not. Changes no parameter. Once, before the first run.
  void prepare();
  // "on", or why not.
  const std::string& state() const { return state_; }
  bool prepared() const { return state_ != "not prepared"; }
  bool captured() const { return !parts_[0].empty(); }

  // Replays a part, or runs its rows.
  void run(Part part, int micro_batch);

 private:
  std::string why_not() const;
  void capture();

  const ExecutorContext& context_;
  RowRunner& rows_;
  Gradients& gradients_;
  RowClock* clock_;
  // By part; the body has one for each place of a micro-batch (UnitBuffers::place).
  std::vector<Graph> parts_[kParts];
  std::string state_ = "not prepared";
};

}  // namespace veil
