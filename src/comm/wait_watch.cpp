#include "comm/wait_watch.h"

#include <chrono>

#include "base/clock.h"
#include "comm/liveness.h"

namespace veil {
namespace {

constexpr auto kWatchGlance = std::chrono::milliseconds(200);

}  // namespace

WaitWatch::WaitWatch(WaitLimits limits, int rank)
    : limits_(limits), rank_(rank), thread_([this] { watch(); }) {}

WaitWatch::~WaitWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WaitWatch::enter(OverdueWait wait) {
  const std::lock_guard lock(mutex_);
  wait_ = std::move(wait);
  wait_->place = current_place();
  clock_.restart();
}

void WaitWatch::leave() {
  const std::lock_guard lock(mutex_);
  wait_.reset();
}

void WaitWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kWatchGlance, [this] { return stopping_; })) {
    if (!wait_) continue;
    look_at_wait(clock_, limits_, steady_ms(), rank_, [this] {
      OverdueWait wait = *wait_;
      if (wait.whom.empty()) wait.ranks = silent_ranks();
      return wait;
    });
  }
}

}  // namespace veil
