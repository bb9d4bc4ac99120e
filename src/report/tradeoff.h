// Time against memory, a point per experiment. In all such pictures time is the horizontal axis and
// memory the vertical one: further left is faster, further down needs less.
#pragma once

#include <string>
#include <vector>

namespace veil {

struct TradeoffPoint {
  std::string series, color;  // such as the clipping mode
  std::string group;  // what else differs, such as "T = 1024"; points of a series are joined
  double ms = 0, bytes = 0;
};

// Many points become a panel per group. "" if there is no point.
std::string tradeoff_script(const std::string& name, const std::string& title,
                            const std::vector<TradeoffPoint>& points);

inline constexpr const char* kTradeoffWords =
    "Further left is faster, further down needs less memory.";

}  // namespace veil
