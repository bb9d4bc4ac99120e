// The next tokens of several texts, drawn from their logits.
#pragma once

#include <vector>

#include "kernels/token_mass.h"
#include "tensor/device.h"

namespace veil {

// tokens: int64 [batch], written. logits [batch, vocabulary], contiguous. seen: bytes [batch,
// vocabulary], or undefined without a repetition penalty. The draw of row i depends on its logits,
// the rule and (seed, samples[i], places[i]), on nothing else; samples and places: int64 [batch].
void draw_tokens(const Tensor& logits, const Tensor& seen, const DrawRule& rule, uint64_t seed,
                 const Tensor& samples, const Tensor& places, const Tensor& tokens);

// The distribution that draw_tokens draws from, of one row without a penalty: zeros are exact.
std::vector<double> token_distribution(const std::vector<float>& logits, const DrawRule& rule);

}  // namespace veil
