#include "comm/overdue.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "comm/rank_link.h"

namespace veil {
namespace {

// The other ranks leave the one that speaks so much time before they end the run themselves.
constexpr double kGraceSeconds = 2;

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "the other ranks";
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{} {}", i > 0 ? "," : "", ranks[i]);
  return text;
}

}  // namespace

std::string describe(const OverdueWait& wait) {
  if (!wait.whom.empty()) return fmt::format("{}, {}", wait.whom, describe(wait.place));
  return fmt::format("{} in {}, {}", ranks_text(wait.ranks), wait.call, describe(wait.place));
}

bool speaks_for(const OverdueWait& wait, int rank) {
  if (!wait.whom.empty()) return true;
  int speaker = 0;
  while (std::find(wait.ranks.begin(), wait.ranks.end(), speaker) != wait.ranks.end()) ++speaker;
  return speaker == rank;
}

void tell_wait(const OverdueWait& wait, const WaitLimits& limits) {
  const std::string end = limits.timeout_s > 0
                              ? fmt::format("the run ends after {:g} s", limits.timeout_s)
                              : "without a limit";
  // A terminal may show a line of progress.
  std::fputs(fmt::format("{}veil: waiting for {}, for {:.0f} s; {}\n",
                         isatty(STDERR_FILENO) ? "\n" : "", describe(wait), wait.waited_s, end)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void end_wait(const OverdueWait& wait, const WaitLimits& limits, int rank) {
  const bool speaks = speaks_for(wait, rank);
  if (!speaks && wait.waited_s < limits.timeout_s + kGraceSeconds) return;
  fail_overdue_world(fmt::format("waited {:.0f} s for {}; --collective-timeout is {:g} s",
                                 wait.waited_s, describe(wait), limits.timeout_s),
                     speaks);
}

}  // namespace veil
