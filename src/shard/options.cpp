#include "shard/options.h"

namespace veil {

const char* strategy_name(Strategy strategy) {
  constexpr const char* kNames[] = {"ddp", "zero2", "zero3"};
  return kNames[static_cast<int>(strategy)];
}

const char* backward_prefetch_name(BackwardPrefetch prefetch) {
  constexpr const char* kNames[] = {"pre", "post", "none"};
  return kNames[static_cast<int>(prefetch)];
}

const char* wrap_policy_name(WrapPolicy wrap) {
  constexpr const char* kNames[] = {"module", "size", "none"};
  return kNames[static_cast<int>(wrap)];
}

}  // namespace veil
