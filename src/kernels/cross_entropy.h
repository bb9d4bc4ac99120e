// Cross-entropy over blocks of the vocabulary: the whole [tokens, vocabulary] matrix need never
// exist.
#pragma once

#include "tensor/device.h"

namespace veil {

inline constexpr int64_t kIgnoreTarget = -100;

// weights[i] = 1 / (targets of sample i that are not ignored), 0 if all are. targets [batch,
// tokens] int64; weights [batch] fp32 (fp64 for fp64 models).
void token_weights(const Tensor& targets, const Tensor& weights);

// Takes in columns [first, first + width) of the logits. logits [rows, width], contiguous, of any
// floating type; targets [rows] int64; state [rows, 3] fp32 (fp64 if logits are): running
// maximum, sum of exponentials below it, the target's logit. first == 0 begins a row; blocks come
// in the columns' order. The target's logit is not a number until its block has come, so that a
// target outside the vocabulary shows in the loss. Ignored rows are skipped and their state is
// never read.
void cross_entropy_scan(const Tensor& logits, int64_t first, const Tensor& targets,
                        const Tensor& state);

// losses[i] = weights[i] * the sum over sample i's rows of (log-sum-exp - the target's logit), fp64
// [batch], in a fixed order; 0 if weights[i] is.
void cross_entropy_losses(const Tensor& state, const Tensor& targets, const Tensor& weights,
                          const Tensor& losses);

// The block's logits become the gradient of the samples' losses, in place: (softmax - one at the
// target) * the sample's weight. Ignored rows, and all rows of a sample whose weight is 0, become
// 0, whatever they held.
void cross_entropy_grad(const Tensor& logits, int64_t first, const Tensor& targets,
                        const Tensor& state, const Tensor& weights);

}  // namespace veil
