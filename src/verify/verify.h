// `veil verify`: every way of computing a private step, held against what DP-SGD is: one sample at
// a time in fp64, clipped and summed by hand.
#pragma once

#include <string>
#include <vector>

#include "record/verify_record.h"
#include "verify/verify_options.h"

namespace veil {

// What is verified if no model is named: the smallest of every family, causal and as
// classifiers.
struct VerifyModel {
  std::string name;
  std::optional<Task> task;
};
std::vector<VerifyModel> verify_models(const VerifyOptions& options);

// Rows of the world that this process belongs to; complete on rank 0. Every rank must call it. Its
// norms and coefficients are not private.
VerifyRecord run_verify(const VerifyOptions& options, const VerifyPlace& place);

// Rows of several worlds, put together: noise must have the same bits in all of them. Appends what
// differs to the noise rows' failures and sets the verdict.
void judge_verify(VerifyRecord& found);

}  // namespace veil
