// The times of a step's rows, and inside them of the reports of parameters, by markers. Rows of a
// captured part are recorded again at each replay.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/grad_sink.h"
#include "profile/timeline.h"
#include "step/schedule.h"
#include "tensor/stream.h"

namespace veil {

class RowClock {
 public:
  // With `reports` every report of a parameter is timed too.
  RowClock(const Schedule& schedule, Device device, bool reports);

  void begin_step() {
    ran_.clear();
    step_begin_.record();
  }
  // A part runs, row by row or as a graph.
  void ran(Part part, int micro_batch) { ran_.emplace_back(part, micro_batch); }
  void end_step() { step_end_.record(); }

  // Around a row of the compute lane.
  void begin_row(Part part, int micro_batch, int index);
  void end_row();
  // A row of another lane, which its pending operations have timed.
  void lane_row(Part part, int micro_batch, int index, const std::vector<PendingPtr>& pending);
  void forget_rows();

  // `sink`, with a clock around its reports if reports are timed.
  GradSink& timed(GradSink& sink);
  // Runs `work`, as part of the running row's reports if reports are timed.
  void time_report(const std::function<void()>& work);

  // Of the last step. Waits for it.
  StepTime read() const;

 private:
  struct Span {
    Marker begin, end;
  };
  struct Row {
    Marker begin, end;                // compute rows
    std::vector<Span> reports;        // of a row, one after another
    size_t reported = 0;              // in the row's present run
    std::vector<PendingPtr> pending;  // rows of other lanes
  };
  class TimedSink final : public GradSink {
   public:
    explicit TimedSink(RowClock& clock) : clock_(clock) {}
    void around(GradSink& sink) { sink_ = &sink; }
    void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
    void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
    void direct(ParamId param, const Tensor& per_sample) override;

   private:
    RowClock& clock_;
    GradSink* sink_ = nullptr;
  };
  Row& row(Part part, int micro_batch, int index);
  bool read_row(const Row& row, RowTime& times, double& compute_end) const;

  const Schedule& schedule_;
  Device device_;
  bool reports_;
  Marker step_begin_, step_end_;
  Row* running_ = nullptr;
  std::vector<std::vector<Row>> parts_[kParts];  // [part][micro-batch][row]
  std::vector<std::pair<Part, int>> ran_;        // in this step, in order
  TimedSink sink_{*this};
};

}  // namespace veil
