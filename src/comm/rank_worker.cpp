#include "comm/rank_worker.h"

#include <chrono>

#include "base/clock.h"
#include "base/error.h"
#include "comm/overdue.h"

namespace veil {
namespace {

// Rounds without any progress before waits are timed: what is quick is not looked at.
constexpr int kRoundsBeforeLook = 16;

}  // namespace

RankWorker::RankWorker(std::unique_ptr<Wire> wire, WaitLimits limits)
    : wire_(std::move(wire)), limits_(limits) {
  std::promise<void> started;
  std::future<void> ready = started.get_future();
  thread_ =
      std::thread([this, started = std::move(started)]() mutable { run(std::move(started)); });
  try {
    ready.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

RankWorker::~RankWorker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_all();
  thread_.join();
}

std::future<void> RankWorker::post(int queue, std::function<RankTask()> make, TaskName name) {
  Job job{std::move(make), {}, nullptr, std::move(name), {}, nullptr};
  std::future<void> done = job.done.get_future();
  {
    std::lock_guard lock(mutex_);
    VEIL_CHECK(!stopping_, "a collective was called after the world had ended");
    inbox_.emplace_back(queue, std::move(job));
  }
  posted_.notify_all();
  wire_->wake();
  return done;
}

void RankWorker::abort(int exit_code) {
  if (std::this_thread::get_id() == thread_.get_id())
    return wire_->abort(exit_code ? exit_code : kExitFailed);
  {
    std::lock_guard lock(mutex_);
    abort_code_ = exit_code ? exit_code : kExitFailed;
  }
  posted_.notify_all();
  wire_->wake();
  // the worker ends the process meanwhile
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

void RankWorker::run(std::promise<void> started) {
  try {
    wire_->begin();
  } catch (...) {
    started.set_exception(std::current_exception());
    return;
  }
  started.set_value();
  loop();
  wire_->end();
}

void RankWorker::loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (abort_code_) wire_->abort(abort_code_);
      for (auto& [queue, job] : inbox_) queues_[queue].push_back(std::move(job));
      inbox_.clear();
      if (queues_.empty()) {
        if (stopping_) return;
        const auto nap = std::chrono::milliseconds(idle_rounds_ < 100 ? 1 : 50);
        if (posted_.wait_for(lock, nap) == std::cv_status::timeout) {
          wire_->look_in();
          ++idle_rounds_;
        } else {
          idle_rounds_ = 0;
        }
        continue;
      }
    }
    moved_ = false;
    if (!advance()) continue;
    if (moved_) {
      idle_rounds_ = 0;
    } else {
      wire_->rest(++idle_rounds_);
      if (idle_rounds_ >= kRoundsBeforeLook) look_at_waits();
    }
  }
}

bool RankWorker::advance() {
  bool any = false;
  for (auto it = queues_.begin(); it != queues_.end();) {
    std::deque<Job>& queue = it->second;
    Job& job = queue.front();
    any = true;
    std::exception_ptr error;
    bool done = false;
    const bool moved_before = std::exchange(moved_, false);
    incomplete_ = nullptr;
    try {
      if (!job.task) job.task = std::make_unique<RankTask>(job.make());
      done = job.task->resume();
      if (done) error = job.task->error();
    } catch (...) {
      done = true;
      error = std::current_exception();
    }
    if (moved_) job.clock.restart();
    job.waits_for = incomplete_;
    moved_ = moved_ || moved_before;
    if (done) {
      moved_ = true;
      // What the task captured ends before the caller hears of it.
      std::promise<void> told = std::move(job.done);
      queue.pop_front();
      if (error) {
        told.set_exception(error);
      } else {
        told.set_value();
      }
    }
    it = queue.empty() ? queues_.erase(it) : std::next(it);
  }
  return any;
}

bool RankWorker::completed(Transfers& transfers) {
  if (!transfers.completed()) {
    incomplete_ = &transfers;
    return false;
  }
  moved_ = true;
  return true;
}

void RankWorker::look_at_waits() {
  const double now_ms = steady_ms();
  for (auto& [queue, jobs] : queues_) {
    Job& job = jobs.front();
    look_at_wait(job.clock, limits_, now_ms, rank(), [&job] {
      return OverdueWait{job.waits_for ? job.waits_for->waiting_for() : std::vector<int>{},
                         job.name.what ? job.name.what() : "a message", job.name.place};
    });
  }
}

}  // namespace veil
