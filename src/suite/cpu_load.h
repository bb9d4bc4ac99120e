// How busy the CPUs were with other work during a measurement: on a shared machine, times of a CPU
// run mean little.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace veil {

// CPU seconds since the machine started, summed over all CPUs.
struct CpuTimes {
  double busy_s = 0, idle_s = 0;
};
// From the text of /proc/stat, which counts in 1/`ticks` s; nothing if it has no such line. Time
// that a hypervisor took counts as busy.
std::optional<CpuTimes> read_cpu_times(const std::string& proc_stat, double ticks);

// Counts from its construction.
class CpuLoad {
 public:
  CpuLoad();
  // {"others_percent", "own_percent"} of all CPUs' time, own being that of this process and of the
  // children that it has waited for; null if the machine does not tell.
  nlohmann::ordered_json so_far() const;

 private:
  std::optional<CpuTimes> begin_;
  double own_begin_s_ = 0;
};

// The two shares, from the counts at the beginning and at the end.
nlohmann::ordered_json cpu_shares(const CpuTimes& begin, const CpuTimes& end, double own_s);

}  // namespace veil
