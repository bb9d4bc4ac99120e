#include "shard/options.h"

namespace veil {

const NameTable<Strategy>& names(Strategy) {
  static const NameTable<Strategy> table = {{Strategy::ddp, "ddp", {"no_shard"}},
                                            {Strategy::zero2, "zero2", {"shard_grad_op"}},
                                            {Strategy::zero3, "zero3", {"fsdp", "full_shard"}}};
  return table;
}

const NameTable<BackwardPrefetch>& names(BackwardPrefetch) {
  static const NameTable<BackwardPrefetch> table = {
      {BackwardPrefetch::pre, "pre", {"BACKWARD_PRE"}},
      {BackwardPrefetch::post, "post", {"BACKWARD_POST"}},
      {BackwardPrefetch::none, "none", {"off"}}};
  return table;
}

const NameTable<WrapPolicy>& names(WrapPolicy) {
  static const NameTable<WrapPolicy> table = {{WrapPolicy::module, "module", {"module_wrap"}},
                                              {WrapPolicy::size, "size", {"size_based"}},
                                              {WrapPolicy::none, "none"}};
  return table;
}

const NameTable<Checkpointing>& names(Checkpointing) {
  static const NameTable<Checkpointing> table = {{Checkpointing::none, "none", {"off"}},
                                                 {Checkpointing::selective, "selective"},
                                                 {Checkpointing::full, "full", {"on"}}};
  return table;
}

const NameTable<AccumulateIn>& names(AccumulateIn) {
  static const NameTable<AccumulateIn> table = {{AccumulateIn::shard, "shard"},
                                                {AccumulateIn::whole, "whole"}};
  return table;
}

const NameTable<Exchange>& names(Exchange) {
  static const NameTable<Exchange> table = {
      {Exchange::automatic, "auto"}, {Exchange::kept, "kept"}, {Exchange::sums, "sums"}};
  return table;
}

}  // namespace veil
