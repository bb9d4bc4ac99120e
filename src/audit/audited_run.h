// A private training run under audit: the real trainer, sampler and update of its options, taken
// step by step from one starting point, with and without noise.
#pragma once

#include "audit/statistics.h"
#include "record/audit_record.h"
#include "run/opened_run.h"
#include "train/update_probe.h"

namespace veil::audit {

using OnProgress = std::function<void(const std::string& what)>;

struct AuditOptions {
  RunConfig config;          // of `veil train`
  double confidence = 0.95;  // that no true law is called broken and the bound holds
  int64_t pairs = 10000;     // of `veil audit canary`
};

struct AuditPlace {
  RankInfo info;
  OnProgress on_progress = {};
  OnNotice on_notice = {};
};

// A sample that is made to be hard to hide.
struct HardSample {
  std::string name;
  Batch row;
  // What it does to the parameters that the step starts from; empty: nothing.
  std::function<void(const Tensor& start)> change = {};
};

// What a run is trained on: samples, and who own them where the unit is a user.
struct AuditedData {
  std::shared_ptr<const Feed> samples;
  std::shared_ptr<const data::Users> users = nullptr;

  int64_t units() const { return users ? users->count() : samples->count(); }  // that are drawn
};

// How many samples a step of an order has on this rank; steps count from 0.
int64_t drawn_here(data::Order& order, int64_t step);

class AuditedRun {
 public:
  // UserError if the options are not those of a private run with noise that starts anew.
  AuditedRun(const AuditOptions& options, const AuditPlace& place);

  OpenedRun& run() { return run_; }
  UpdateProbe& probe() { return probe_; }
  const privacy::Mechanism& mechanism() const { return run_.mechanism(); }
  AuditClaim claim() const;
  double clip_norm() const { return mechanism().request().clip_norm; }
  double expected_batch() const { return mechanism().expected_batch(); }
  // The noise's on an element of the mean gradient, as planned.
  double planned_deviation() const { return mechanism().noise_deviation() / expected_batch(); }
  const AuditedData& data() const { return data_; }  // the run's own
  AuditedData one_unit() const;                      // its first sample alone

  // The mean gradient of the trainer's step `step` on this data, from the starting point.
  Tensor gradient(const AuditedData& data, int64_t step, bool silent,
                  const std::function<void(const Tensor&)>& change = {});
  // The same without samples and without the trainer, as often as noise alone is wanted. A fixed
  // batch consists of samples that do not count.
  Tensor noise(int64_t step);
  // The samples' order as the trainer makes it for this data.
  std::unique_ptr<data::Order> order(const AuditedData& data);
  double sum_over_ranks(double value);

  std::vector<HardSample> hard_samples() const;
  // What one sample does to the sum, in units of C: with it and without it, at one step. Where the
  // unit is a user, a user whose several samples are all this one.
  struct Move {
    Tensor difference;  // of the mean gradients
    double distance = 0, allowed = 0;
  };
  Move move_by(const HardSample& sample);

 private:
  int64_t step_that_draws(int64_t unit);
  AuditedData data_with(const HardSample& sample, bool present) const;

  AuditOptions options_;
  OpenedRun run_;
  UpdateProbe probe_;
  AuditedData data_;
  std::optional<int64_t> canary_step_, replaced_;
};

}  // namespace veil::audit
