// The CUDA launches of generation: plain pointers, as in launch.h.
#pragma once

#include "kernels/launch.h"
#include "kernels/token_mass.h"

namespace veil::launch {

struct CacheAppend {
  void *qkv, *keys, *values;
  Element element;
  int64_t batch, heads, kv_heads, head_dim, capacity;
  const int64_t* positions;  // on the device
  RopeFrequencies frequencies;
  void* stream;
};
void cache_append(const CacheAppend& append);

struct TokenDraw {
  const void* logits;
  Element element;
  const uint8_t* seen;  // may be null
  int64_t batch, vocabulary;
  DrawRule rule;
  uint64_t seed;
  const int64_t *samples, *places;  // on the device
  int64_t* tokens;
  void* stream;
};
void draw_tokens(const TokenDraw& draw);

}  // namespace veil::launch
