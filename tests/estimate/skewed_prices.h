// Prices of this machine by which another clip plan is the fastest than by those it has.
#pragma once

#include <fmt/core.h>

#include "base/cpu_model.h"
#include "estimate/machine_prices.h"

namespace veil {

// As if `veil doctor --calibrate` had written them for one thread: gradients of samples are moved so
// slowly that keeping them does not pay, or products for norms made so slowly that nothing else
// does.
inline void write_skewed_prices(const std::string& path, bool keeping_pays) {
  MachinePrices prices = assumed_prices(/*on_gpu=*/false, at::kFloat);
  prices.machine = fmt::format("{}, 1 threads fp32", cpu_model());
  const auto slow = keeping_pays ? std::vector{Amount::gram, Amount::tile, Amount::clip}
                                 : std::vector{Amount::kept, Amount::combined};
  for (const Amount amount : slow) prices.seconds[static_cast<size_t>(amount)] *= 1000;
  store_prices(path, prices);
}

}  // namespace veil
