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

using Seconds = std::pair<Amount, double>;

void set_seconds(MachinePrices& prices, std::initializer_list<Seconds> seconds) {
  for (const auto& [amount, value] : seconds) prices.seconds[static_cast<size_t>(amount)] = value;
}

// `veil doctor --calibrate` on one H200 (141 GB, CUDA 13.0, LibTorch 2.11.0) on 2026-11-18: 27 steps.
// Of the 45 steps in docs/benchmarks/booked_memory_h200_2026-11-18.md, on another card, half are off
// by less than 2.2 % and the farthest by 5.9 %.
MachinePrices measured_h200() {
  MachinePrices prices;
  prices.source = "measured on 27 steps on 2026-11-18";
  prices.typical = 0.04;
  prices.spread = 0.1;
  set_seconds(prices, {
                          {Amount::product_10m, 0.000154},
                          {Amount::product_100m, 4.68e-06},
                          {Amount::product_1g, 4.41e-06},
                          {Amount::product_10g, 1.51e-06},
                          {Amount::product_100g, 1.43e-06},
                          {Amount::product_1t, 1.36e-06},
                          {Amount::attention_forward, 2.3e-06},
                          {Amount::attention_backward, 2.16e-06},
                          {Amount::gram, 2.04e-06},
                          {Amount::tile, 1.7e-06},
                          {Amount::clip, 1.56e-06},
                          {Amount::logits, 0.00213},
                          {Amount::moved_forward, 0.000404},
                          {Amount::moved_backward, 0.0012},
                          {Amount::gram_moved, 8.33e-05},
                          {Amount::tile_moved, 0},
                          {Amount::clip_moved, 9.95e-05},
                          {Amount::kept, 8.92e-05},
                          {Amount::combined, 0.000209},
                          {Amount::updated, 0.000253},
                          {Amount::copied, 0.04},
                          {Amount::noise_philox, 0.00048},
                          {Amount::noise_secure, 0.00283},
                          {Amount::noise_hardened, 0.00407},
                          {Amount::forward_rows, 1.84e-05},
                          {Amount::backward_rows, 5.23e-05},
                          {Amount::loss_rows, 3.52e-05},
                          {Amount::update_rows, 6.73e-06},
                          {Amount::other_rows, 2.44e-05},
                          {Amount::norm_launches, 3.65e-06},
                          {Amount::steps, 1.14e-05},
                      });
  return prices;
}

// The same on two Neoverse-V1 cores, fp32, two threads, on 2026-11-18: 20 steps
// (docs/benchmarks/cpu_attention_2026-11-18.md). Products of 100 GFLOP and more were not among them
// and cost what the largest did.
MachinePrices measured_cpu() {
  MachinePrices prices;
  prices.source = "measured on 20 steps on two Neoverse-V1 cores on 2026-11-18";
  prices.typical = 0.14;
  prices.spread = 0.3;
  set_seconds(prices, {
                          {Amount::product_10m, 0.0206},
                          {Amount::product_100m, 0.0112},
                          {Amount::product_1g, 0.00858},
                          {Amount::product_10g, 0.00999},
                          {Amount::product_100g, 0.00999},
                          {Amount::product_1t, 0.00999},
                          {Amount::attention_forward, 0.0108},
                          {Amount::attention_backward, 0.00868},
                          {Amount::gram, 0.0159},
                          {Amount::tile, 0.011},
                          {Amount::clip, 0.00958},
                          {Amount::logits, 0.724},
                          {Amount::moved_forward, 0.0849},
                          {Amount::moved_backward, 0.066},
                          {Amount::gram_moved, 0.292},
                          {Amount::tile_moved, 0},
                          {Amount::clip_moved, 0.016},
                          {Amount::kept, 0.0245},
                          {Amount::combined, 0.0627},
                          {Amount::updated, 0.0168},
                          {Amount::copied, 0.125},
                          {Amount::updated_numbers, 0},
                          {Amount::noise_philox, 2.32},
                          {Amount::noise_secure, 3.64},
                          {Amount::noise_hardened, 6.85},
                          {Amount::forward_rows, 3.35e-05},
                          {Amount::backward_rows, 3.62e-05},
                          {Amount::loss_rows, 0.000109},
                          {Amount::update_rows, 7.02e-06},
                          {Amount::other_rows, 1.07e-05},
                          {Amount::norm_launches, 1.19e-05},
                          {Amount::steps, 3.44e-06},
                      });
  return prices;
}

void scale(MachinePrices& prices, Bound bound, double factor) {
  for (const auto& entry : names(Amount{})) {
    if (bound_of(entry.value) == bound) prices.seconds[static_cast<size_t>(entry.value)] *= factor;
  }
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
  scale(prices, Bound::compute, h200.tflops / other.tflops);
  scale(prices, Bound::memory, h200.terabytes_per_s / other.terabytes_per_s);
  prices.source = fmt::format("an H200's ({}), scaled by published figures", prices.source);
  prices.spread += 0.15;
  prices.typical += 0.1;
  return prices;
}

MachinePrices known_cpu_prices(const std::string& processor, int threads, DType compute) {
  const bool measured = compute == at::kFloat;
  MachinePrices prices = measured ? measured_cpu() : assumed_prices(/*on_gpu=*/false, compute);
  scale(prices, Bound::compute, (measured ? 2.0 : 1.0) / threads);
  prices.machine = fmt::format("{}, {} threads {}", processor, threads, dtype_name(compute));
  if (!measured || (processor.find("Neoverse-V1") != std::string::npos && threads == 2))
    return prices;
  prices.source += ", computing scaled by the threads";
  // Two cores of another kind can be twice or half as fast.
  prices.typical = 0.5;
  prices.spread = 1;
  return prices;
}

}  // namespace veil
