// What else the CPUs did while something ran here: on a machine that is shared, times of a CPU run mean little.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace veil {

// Seconds of CPU since the machine started, over all of them.
struct CpuTimes {
  double busy_s = 0, idle_s = 0;
};
// Of /proc/stat's text, whose counts are in 1/`ticks` s; nothing where it has no such line. Time that a hypervisor took counts as busy.
std::optional<CpuTimes> read_cpu_times(const std::string& proc_stat, double ticks);

// From its making on.
class CpuLoad {
 public:
  CpuLoad();
  // {"others_percent", "own_percent"} of all CPUs' time, own being that of this process and of the children that it has waited for; null where the
  // machine does not say.
  nlohmann::ordered_json so_far() const;

 private:
  std::optional<CpuTimes> begin_;
  double own_begin_s_ = 0;
};

// The two shares, from counts at both ends.
nlohmann::ordered_json cpu_shares(const CpuTimes& begin, const CpuTimes& end, double own_s);

}  // namespace veil
