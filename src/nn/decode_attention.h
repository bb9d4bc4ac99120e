// Attention of one new token per text over the keys and values that a cache holds.
#pragma once

#include "nn/attention.h"
#include "nn/decode.h"

namespace veil {

// qkv [batch, 1, joint width] of the new tokens, not turned yet, overwritten -> [batch, 1, width].
Tensor attend_to_cache(const Attention& attention, const Tensor& qkv, const LayerCache& cache,
                       const DecodeStep& step);

// Keys and values of whole prompts, from the turned joint product [batch, tokens, joint width].
void remember_keys(const Attention& attention, const Tensor& qkv, const LayerCache& cache);

}  // namespace veil
