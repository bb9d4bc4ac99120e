// Prices of machines that come with the program.
#include "estimate/machine_prices.h"

namespace veil {
namespace {

// Published figures: dense bf16 TFLOP/s, memory in TB/s, and the GiB that a program can use.
struct Published {
  const char* name;
  double tflops, terabytes_per_s, gib;
};
const Published& published(KnownGpu gpu) {
  static constexpr Published kTable[] = {{"NVIDIA H200", 989, 4.8, 139.8},
                                         {"NVIDIA H100 SXM", 989, 3.35, 79.1},
                                         {"NVIDIA A100 SXM 80 GB", 312, 2.039, 79.1}};
  return kTable[static_cast<int>(gpu)];
}

// `veil doctor --calibrate` on one H200 (141 GB, CUDA 13.0, LibTorch 2.11.0) on 2026-11-17: 27 steps,
// docs/benchmarks/foresight_h200_2026-11-17.md.
MachinePrices measured_h200() {
  MachinePrices prices;
  prices.source = "measured on 27 steps on 2026-11-17";
  prices.typical = 0.045;
  prices.spread = 0.11;
  constexpr std::pair<Amount, double> kSeconds[] = {
      {Amount::product_10m, 0.000154},
      {Amount::product_1g, 4.51e-06},
      {Amount::product_10g, 1.27e-06},
      {Amount::product_100g, 1.44e-06},
      {Amount::product_1t, 1.29e-06},
      {Amount::attention_forward, 2.24e-06},
      {Amount::attention_backward, 1.97e-06},
      {Amount::gram, 2.82e-06},
      {Amount::tile, 1.49e-06},
      {Amount::clip, 2.57e-06},
      {Amount::logits, 0.000983},
      {Amount::moved_forward, 0.000444},
      {Amount::moved_backward, 0.00151},
      {Amount::gram_moved, 0.000169},
      {Amount::clip_moved, 0.000241},
      {Amount::kept, 0.00013},
      {Amount::combined, 0.000228},
      {Amount::updated, 0.000282},
      {Amount::copied, 0.04},
      {Amount::updated_numbers, 0.000735},
      {Amount::noise_secure, 0.00316},
      {Amount::noise_hardened, 0.00377},
      {Amount::forward_rows, 2.01e-05},
      {Amount::backward_rows, 4.53e-05},
      {Amount::loss_rows, 2.71e-05},
      {Amount::update_rows, 1.46e-05},
      {Amount::other_rows, 1.47e-05},
      {Amount::norm_launches, 5.05e-06},
      {Amount::steps, 1.19e-05},
  };
  for (const auto& [amount, seconds] : kSeconds)
    prices.seconds[static_cast<size_t>(amount)] = seconds;
  return prices;
}

}  // namespace

const NameTable<KnownGpu>& names(KnownGpu) {
  static const NameTable<KnownGpu> table = {
      {KnownGpu::h200, "h200"}, {KnownGpu::h100, "h100"}, {KnownGpu::a100, "a100"}};
  return table;
}

double memory_gib(KnownGpu gpu) {
  return published(gpu).gib;
}

MachinePrices known_prices(KnownGpu gpu, DType compute) {
  // Only products of 16-bit numbers were measured.
  MachinePrices prices =
      dtype_bytes(compute) == 2 ? measured_h200() : assumed_prices(/*on_gpu=*/true, compute);
  const Published &h200 = published(KnownGpu::h200), &other = published(gpu);
  prices.machine = fmt::format("{} {}", other.name, dtype_name(compute));
  if (gpu == KnownGpu::h200) return prices;
  for (const auto& entry : names(Amount{})) {
    double& seconds = prices.seconds[static_cast<size_t>(entry.value)];
    if (bound_of(entry.value) == Bound::compute) seconds *= h200.tflops / other.tflops;
    if (bound_of(entry.value) == Bound::memory)
      seconds *= h200.terabytes_per_s / other.terabytes_per_s;
  }
  prices.source = fmt::format("an H200's ({}), scaled by published figures", prices.source);
  prices.spread += 0.15;
  prices.typical += 0.1;
  return prices;
}

MachinePrices known_cpu_prices(DType compute) {
  return assumed_prices(/*on_gpu=*/false, compute);
}

}  // namespace veil
