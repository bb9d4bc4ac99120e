#include "suite/cpu_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace veil {
namespace {

std::optional<CpuTimes> now() {
  std::ifstream file("/proc/stat");
  std::ostringstream text;
  text << file.rdbuf();
  return read_cpu_times(text.str(), static_cast<double>(sysconf(_SC_CLK_TCK)));
}

double own_s() {
  double sum = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    if (getrusage(who, &used) != 0) continue;
    for (const timeval& time : {used.ru_utime, used.ru_stime})
      sum += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  }
  return sum;
}

}  // namespace

std::optional<CpuTimes> read_cpu_times(const std::string& proc_stat, double ticks) {
  std::istringstream line(proc_stat);
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft_interrupts = 0,
         stolen = 0;
  if (!(line >> name >> user >> nice >> system >> idle) || name != "cpu" || ticks <= 0) return {};
  line >> waiting >> interrupts >> soft_interrupts >> stolen;  // an old kernel may not have them
  return CpuTimes{(user + nice + system + interrupts + soft_interrupts + stolen) / ticks,
                  (idle + waiting) / ticks};
}

nlohmann::ordered_json cpu_shares(const CpuTimes& begin, const CpuTimes& end, double own_s) {
  const double busy = end.busy_s - begin.busy_s, all = busy + end.idle_s - begin.idle_s;
  if (all <= 0) return nullptr;
  const auto percent = [&](double seconds) { return std::clamp(100 * seconds / all, 0.0, 100.0); };
  return {{"others_percent", percent(busy - own_s)}, {"own_percent", percent(own_s)}};
}

CpuLoad::CpuLoad() : begin_(now()), own_begin_s_(own_s()) {}

nlohmann::ordered_json CpuLoad::so_far() const {
  const auto end = now();
  return begin_ && end ? cpu_shares(*begin_, *end, own_s() - own_begin_s_) : nullptr;
}

}  // namespace veil
