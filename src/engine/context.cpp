#include "engine/context.h"

#include <ATen/Context.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/sample_products.h"

namespace veil {

const NameTable<GraphMode>& names(GraphMode) {
  static const NameTable<GraphMode> table = {
      {GraphMode::automatic, "auto"}, {GraphMode::on, "on"}, {GraphMode::off, "off"}};
  return table;
}

ExecutorContext::ExecutorContext(const Model& model_of, int64_t batch,
                                 const ExecutorOptions& options_of, Device device_of,
                                 Ranks ranks_of)
    : model(model_of),
      options(options_of),
      device(device_of),
      shape(model.shape(batch, options.step.compute, device.is_cuda())),
      ranks(std::move(ranks_of)),
      compute(Stream::create(device)),
      copy(Stream::create(device)),
      some_frozen(std::any_of(shape.params.begin(), shape.params.end(),
                              [](const ParamShape& param) { return param.frozen; })) {
  // Products on CPU go to BLAS: oneDNN reorders its operands into memory that no row of the
  // schedule requested.
  at::globalContext().setUserEnabledMkldnn(false);
  options.step.optimizer = options.optimizer.kind;
  options.step.on_gpu = device.is_cuda();
  options.step.sample_products = device.is_cuda() && gpu_has_sample_products();
  VEIL_CHECK(options.step.clip.has_value() == options.privacy.has_value(),
             "a clip method without a private step, or the reverse");
  schedule = build_schedule(shape, options.step);
  options.step = schedule.options;
  VEIL_CHECK(options.step.world == 1 || (ranks.gather && ranks.reduce),
             "a world of {} without communicators", options.step.world);
  VEIL_CHECK(!ranks.gather || ranks.gather->size() == options.step.world,
             "the communicator's world is another one");
}

Tensor ExecutorContext::own_part(const Tensor& flat, int u) const {
  const int64_t shard = unit(u).shard_numel;
  return flat.numel() == shard ? flat : flat.narrow(0, ranks.rank() * shard, shard);
}

int64_t ExecutorContext::first_of(const Tensor& flat, int u) const {
  return flat.numel() == unit(u).padded_numel ? 0 : ranks.rank() * unit(u).shard_numel;
}

}  // namespace veil
