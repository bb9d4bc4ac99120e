#include "report/bytes_scale.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace veil {

void BytesScale::see(std::optional<double> bytes) {
  largest_ = std::max(largest_, std::abs(bytes.value_or(0)));
}

std::string BytesScale::show(std::optional<double> bytes) const {
  if (!bytes) return "-";
  const bool large = largest_ >= static_cast<double>(kGiB);
  const double amount = *bytes / static_cast<double>(large ? kGiB : kMiB);
  const char* const unit = large ? "GiB" : "MiB";
  if (amount != 0 && std::abs(amount) < 0.00005) return fmt::format("<0.0001 {}", unit);
  if (amount != 0 && std::abs(amount) < 0.005) return fmt::format("{:.4f} {}", amount, unit);  // little is not nothing
  return fmt::format("{:.2f} {}", amount, unit);
}

std::string BytesScale::show_change(std::optional<double> bytes) const {
  return bytes ? fmt::format("{}{}", *bytes < 0 ? "-" : "+", show(std::abs(*bytes))) : "-";
}

}  // namespace veil
