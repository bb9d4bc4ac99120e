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

// `veil doctor --calibrate` on one H200 (141 GB, CUDA 13.0, LibTorch 2.11.0) on 2026-11-17: 27 steps.
// The errors are those of the 45 steps in docs/benchmarks/foresight_h200_2026-11-17.md.
MachinePrices measured_h200() {
  MachinePrices prices;
  prices.source = "measured on 27 steps on 2026-11-17";
  prices.typical = 0.045;
  prices.spread = 0.11;
  constexpr std::pair<Amount, double> kSeconds[] = {
      {Amount::product_10m, 0.000154},
      {Amount::product_100m, 1.18e-06},
      {Amount::product_1g, 4.73e-06},
      {Amount::product_10g, 1.19e-06},
      {Amount::product_100g, 1.35e-06},
      {Amount::product_1t, 1.26e-06},
      {Amount::attention_forward, 1.98e-06},
      {Amount::attention_backward, 2.08e-06},
      {Amount::gram, 2.42e-06},
      {Amount::tile, 1.37e-06},
      {Amount::clip, 1.46e-06},
      {Amount::logits, 0.00184},
      {Amount::moved_forward, 0.000587},
      {Amount::moved_backward, 0.00132},
      {Amount::gram_moved, 0.000232},
      {Amount::tile_moved, 0.000161},
      {Amount::clip_moved, 0.000288},
      {Amount::kept, 0.000162},
      {Amount::combined, 0.000227},
      {Amount::updated, 0.000258},
      {Amount::copied, 0.04},
      {Amount::updated_numbers, 0.000903},
      {Amount::noise_secure, 0.00319},
      {Amount::noise_hardened, 0.00353},
      {Amount::forward_rows, 1.7e-05},
      {Amount::backward_rows, 4.79e-05},
      {Amount::loss_rows, 2.99e-05},
      {Amount::update_rows, 1.45e-05},
      {Amount::other_rows, 1.29e-05},
      {Amount::norm_launches, 3.19e-06},
      {Amount::steps, 1.1e-05},
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

MachinePrices known_cpu_prices(const std::string& processor, int threads, DType compute) {
  MachinePrices prices = assumed_prices(/*on_gpu=*/false, compute);
  for (const auto& entry : names(Amount{})) {
    if (bound_of(entry.value) == Bound::compute)
      prices.seconds[static_cast<size_t>(entry.value)] /= threads;
  }
  prices.machine = fmt::format("{}, {} threads {}", processor, threads, dtype_name(compute));
  return prices;
}

}  // namespace veil
