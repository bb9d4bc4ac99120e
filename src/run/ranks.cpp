#include "run/ranks.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "base/error.h"
#include "base/quantity.h"
#include "tensor/device.h"

namespace veil {

int experiment_world(const RunConfig& config, const RankInfo& info) {
  return config.placement.simulate_world.value_or(info.world);
}

void set_arithmetic(const RunConfig& config) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(config.step.tf32);
  context.setAllowTF32CuDNN(config.step.tf32);
  // Long sums of two-byte products are split; the parts are then added in fp32, too, and rounded once.
  context.setAllowBF16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setAllowFP16ReductionCuBLAS(/*allow_reduced_precision=*/false);
  context.setDeterministicAlgorithms(config.step.deterministic, /*warn_only=*/false);
  if (!config.step.deterministic) return;
  // A kernel without an order of its own throws from now on instead of being taken. cuBLAS is told
  // through the environment alone.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/1);
  context.setDeterministicFillUninitializedMemory(false);
}

Device choose_device(const RunConfig& config, const RankInfo& info) {
  const bool gpu = config.placement.device == DeviceKind::gpu ||
                   (config.placement.device == DeviceKind::automatic && gpu_count() > 0);
  if (!gpu) return cpu_device();
  if (info.local_world > gpu_count() && gpu_count() > 0 && !config.placement.share_gpu) {
    user_error(
        "{} on {}: one rank per GPU is allowed; pass `share_gpu` to let ranks share one, or "
        "`device` "
        "cpu",
        quantity(info.local_world, "rank"), quantity(gpu_count(), "GPU"));
  }
  return gpu_device(gpu_count() > 0 ? info.local_rank % gpu_count() : 0);
}

Ranks make_ranks(const RunConfig& config, const RankInfo& info, Device device) {
  if (config.placement.simulate_world) {
    if (*config.placement.simulate_world == 1) return {};
    SimulatedLink link;
    link.bandwidth_bytes_per_s = config.placement.link_gb_per_s * 1e9;
    auto lane = [&] {
      return make_simulated_communicator(config.placement.simulate_rank,
                                         *config.placement.simulate_world, device, link);
    };
    return {lane(), lane()};
  }
  if (info.world == 1) return {};
  const bool nccl = device.is_cuda() && !config.placement.share_gpu;
  auto lane = [&](int number) {
    return nccl ? make_nccl_communicator(number, device) : make_host_communicator(number, device);
  };
  std::unique_ptr<Communicator> gather = lane(0), reduce = lane(1);  // in this order on every rank
  return {std::move(gather), std::move(reduce)};
}

privacy::ClipMethod method_of_rank_0(const privacy::ClipMethod& mine, Device device,
                                     Communicator* lane) {
  if (!lane || lane->backend() == "simulated") return mine;
  const auto& [pass, rules, tile, layers, combine_every] = mine;  // none is forgotten
  std::vector<double> numbers = {static_cast<double>(pass), static_cast<double>(tile),
                                 layers ? 1.0 : 0.0, static_cast<double>(combine_every)};
  for (const privacy::NormRule rule : rules) numbers.push_back(static_cast<double>(rule));
  Tensor values = empty_tensor({std::ssize(numbers)}, at::kDouble, cpu_device());
  std::copy(numbers.begin(), numbers.end(), values.data_ptr<double>());
  values = values.to(device);
  lane->broadcast(values, 0)->wait();
  values = values.cpu();
  const double* number = values.data_ptr<double>();
  privacy::ClipMethod method;
  method.pass = static_cast<privacy::PassKind>(*number++);
  method.tile = static_cast<int64_t>(*number++);
  method.layers = *number++ != 0;
  method.combine_every = static_cast<int>(*number++);
  for (size_t i = 0; i < rules.size(); ++i)
    method.rules.push_back(static_cast<privacy::NormRule>(*number++));
  return method;
}

}  // namespace veil
