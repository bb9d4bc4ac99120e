#include "comm/wait_clock.h"

#include <algorithm>

namespace veil {
namespace {

constexpr double kMostGapMs = 2000;  // between two looks of a process that runs

}  // namespace

WaitClock::Due WaitClock::look(const WaitLimits& limits, double now_ms) {
  if (looked_ms_ > 0) waited_ms_ += std::clamp(now_ms - looked_ms_, 0.0, kMostGapMs);
  looked_ms_ = now_ms;
  if (limits.timeout_s > 0 && waited_s() >= limits.timeout_s) return Due::end;
  if (waited_s() < limits.notice_s() * (notices_ + 1)) return Due::nothing;
  ++notices_;
  return Due::notice;
}

}  // namespace veil
