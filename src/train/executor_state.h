// What the executor keeps between rows. Included by the executor's own files only.
#pragma once

#include <functional>

#include "nn/grad_sink.h"
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
  struct Span {
    Marker begin, end;
  };
  struct Row {
    Marker begin, end;                // compute rows
    std::vector<Span> reports;        // of a row, one after another
    size_t reported = 0;              // in the row's present run
    std::vector<PendingPtr> pending;  // rows of other lanes
  };
  Marker step_begin, step_end;
  Row* running = nullptr;                       // whose reports are timed
  std::vector<std::vector<Row>> parts[kParts];  // [part][micro-batch][row]
  Row& row(Part part, int micro_batch, int index, const Schedule& schedule);
};

// Passes on what is said of parameters that are trained.
class Executor::TrainedSink final : public GradSink {
 public:
  explicit TrainedSink(const std::vector<ParamShape>& params) : params_(params) {}
  TrainedSink& around(GradSink& sink) {
    sink_ = &sink;
    return *this;
  }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override {
    if (trains(of.param)) sink_->linear(of, a, g);
  }
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override {
    if (trains(table)) sink_->embedding(table, ids, g);
  }
  void direct(ParamId param, const Tensor& per_sample) override {
    if (trains(param)) sink_->direct(param, per_sample);
  }

 private:
  bool trains(ParamId param) const { return !params_[static_cast<size_t>(param)].frozen; }
  const std::vector<ParamShape>& params_;
  GradSink* sink_ = nullptr;
};

// A sink with a clock: how long another one takes over a row's reports.
class Executor::TimedSink final : public GradSink {
 public:
  TimedSink(Timers& timers, Device device) : timers_(timers), device_(device) {}
  TimedSink& around(GradSink& sink) {
    sink_ = &sink;
    return *this;
  }
  void linear(ReportOf of, const Tensor& a, const Tensor& g) override;
  void embedding(ParamId table, const Tensor& ids, const Tensor& g) override;
  void direct(ParamId param, const Tensor& per_sample) override;
  void timed(const std::function<void()>& work);

 private:
  Timers& timers_;
  Device device_;
  GradSink* sink_ = nullptr;
};

}  // namespace veil
