// What a step does with its gradients: the sinks that sum or clip them, the sums of micro-batches
// and of kept gradients, the norm and the update. Holds the numbers that the step's kernels share.
#pragma once

#include <memory>

#include "engine/clip_state.h"
#include "engine/unit_buffers.h"
#include "nn/summed_sink.h"

namespace veil {

class Gradients {
 public:
  Gradients(const ExecutorContext& context, UnitBuffers& units);

  // Null if the step is not private.
  ClipState* clip() { return clip_.get(); }
  const Tensor& knobs() const { return knobs_; }  // a StepKnobs
  const Tensor& loss_sum() const { return loss_sum_; }

  // The running micro-batch's, among those whose kept gradients are summed at once (ClipState).
  int coefficient_place() const {
    return context_.schedule.exchanges() ? context_.ranks.rank() : units_.place();
  }

  // The numbers of step `step`, which begins.
  void set_knobs(double learning_rate, int64_t step);
  // A micro-batch begins; `ids` are its inputs.
  void begin_body(const Tensor& ids);

  // What takes an operation's reports. `tape`: its block's own, while it reports.
  GradSink& sink(const Op& op, const Tape* tape);
  // Operations of the compute lane.
  void zero(const Op& op);
  void combine(const Op& op);
  void add_norm(const Op& op);
  void coefficients(const Op& op);
  void update(const Op& op);
  // Of a private step that ran row by row, at its end: every unit that is trained got its noise,
  // once.
  void expect_noised() const;
  // The kernels that a step's tail begins with, run on numbers of no meaning: libraries set
  // themselves up at their first call.
  void rehearse();

  // Of the last step. Waits for it.
  double read_loss_sum() const;
  double read_grad_norm() const;

 private:
  // Passes on what is said of parameters that are trained.
  class TrainedSink final : public GradSink {
   public:
    explicit TrainedSink(const std::vector<ParamShape>& params) : params_(params) {}
    void around(GradSink& sink) { sink_ = &sink; }
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

  void combine_received(int unit);
  double samples_in_step() const;
  double update_divisor() const;
  std::unique_ptr<ClipState> make_clip_state();

  const ExecutorContext& context_;
  UnitBuffers& units_;
  UpdateRule rule_;
  Tensor knobs_, loss_sum_, squared_norm_;  // the others are views of knobs_
  std::unique_ptr<SummedSink> sums_;        // of a step that is not private
  std::unique_ptr<ClipState> clip_;         // of one that is
  TrainedSink trained_;                     // used if some parameters are frozen
  std::vector<int64_t> updates_;            // of this step, by unit
};

}  // namespace veil
