// `veil audit mechanism`: the noise, the sensitivity and the sampling of a training run as they
// are, and the epsilon that follows from them.
#pragma once

#include "audit/audited_run.h"

namespace veil::audit {

// Every rank must call it; the record is rank 0's. Its command, config and build are the caller's.
AuditRecord audit_mechanism(const AuditOptions& options, const AuditPlace& place);

// Part of it: the laws of noise in planned deviations, by step and named cell (a parameter or a
// rank's shard). Laws and failures go to the record; with probability `alpha` at most true normals
// fail one.
struct NoiseCell {
  std::string name;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // first, count
};
void judge_noise(const std::vector<std::vector<double>>& steps,
                 const std::vector<std::string>& step_names, const std::vector<NoiseCell>& cells,
                 double alpha, AuditRecord& record);

}  // namespace veil::audit
