// What a private step holds between its operations: norms, coefficients, counts, and the sinks that
// fill and read them.
#pragma once

#include <memory>

#include "privacy/book_sink.h"
#include "privacy/clip_method.h"
#include "privacy/clipped_sink.h"
#include "privacy/keep_sink.h"
#include "privacy/norm_sink.h"
#include "step/schedule.h"

namespace veil {

class ClipState {
 public:
  struct Targets {
    privacy::ClippedSink::Target sums;  // of the gradient
    privacy::KeepSink::Target kept;     // of every sample's
  };
  ClipState(const Schedule& schedule, const ModelShape& shape, const privacy::PrivateStep& step,
            Device device, Targets targets);

  // A micro-batch starts; `ids` are its inputs, and `place` is its own among those whose kept
  // gradients are summed at once.
  void begin_body(const Tensor& ids, int place);
  // `tape`: block's own, while it reports.
  GradSink& sink(GradUse use, int block, const Tape* tape);
  // Norms of what block `block` was the last to report of the kept gradients, where they were not
  // found while those were made.
  void norm_kept(int block, const std::function<Tensor(int unit)>& kept);
  void coefficients(int layer, int place);
  // A block that books has made its reports.
  void finish_norms() { norms_.finish(); }
  void replay(int block, const Tape& tape) { book_.replay(block, tape, clipped_); }
  privacy::ClipCoefficients coefficients_of() const {
    return {coefficients_, schedule_.layers.of_param};
  }
  // Of all samples whose kept gradients are summed at once: 0 for those that have not run. A place
  // is a micro-batch's, or where ranks exchange kept gradients a rank's.
  privacy::ClipCoefficients coefficients_of_kept() const {
    return {kept_coefficients_, schedule_.layers.of_param};
  }
  // Those of all places of a layer that is the only one, and those of one place.
  Tensor coefficients_together() const { return kept_coefficients_.view({-1}); }
  Tensor coefficients_of_place(int place) const {
    return coefficients_together().narrow(0, place * layout_.samples, layout_.samples);
  }
  void drop() { book_.clear(); }

  void set_clip_norms(const std::vector<double>& clip_norms);
  // The step's number and its noise's deviation, for the update.
  void set_noise(int64_t step);
  // Whether the next steps add noise: off only if a step's sum itself is looked at.
  void silence(bool silent) { silent_ = silent; }
  const Tensor& noise_knobs() const { return noise_knobs_; }
  const NoiseSource& noise() const { return step_.noise; }
  double expected_batch() const { return step_.expected_batch; }
  const Tensor& counted() const { return counted_; }
  // fp64 [1]: a loss that is evaluated twice counts once
  const Tensor& discarded_loss() const { return discarded_loss_; }
  void clear_tally() { tally_.zero_(); }
  ClipTally tally() const;
  // Of the last micro-batch, which had this place: no sample moves the sum by more than C
  // (privacy/invariants.h), nor does any from the places behind it, if they are this rank's.
  void expect_clipped(int place) const;
  const Tensor& squared_norms() const { return squared_; }
  const Tensor& coefficient_values() const { return coefficients_; }

 private:
  const Schedule& schedule_;
  const ModelShape& shape_;
  privacy::PrivateStep step_;
  bool silent_ = false;
  ClipStateLayout layout_;
  Tensor doubles_, layers_, counted_;  // resident, as ClipStateLayout says
  // views of doubles_
  Tensor squared_, coefficients_, kept_coefficients_, clip_norms_, tally_, discarded_loss_,
      noise_knobs_;
  std::vector<std::vector<ParamId>> normed_after_;  // by block, keep
  privacy::NormSink norms_;
  privacy::BookSink book_;
  privacy::KeepSink keep_;
  privacy::ClippedSink clipped_;
};

}  // namespace veil
