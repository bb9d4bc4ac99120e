// The one thread of the process that talks to the other ranks' memory.
//
// Work is written as coroutines: a task posts messages and suspends while they are under way. Each
// queue runs its tasks in order; queues advance side by side, so that two communicators are
// independent even if ranks post to them in different orders.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call_place.h"
#include "comm/wait_clock.h"
#include "comm/wire.h"

namespace veil {

// What a task does, for the line that is printed if it waits too long.
struct TaskName {
  std::function<std::string()> what = {};  // "all_reduce of 1000 fp32"
  CallPlace place = {};
};

class RankWorker {
 public:
  // Starts the thread and the wire on it. Throws where the wire cannot start. A task that waits for
  // another rank longer than the limits allow ends the World.
  explicit RankWorker(std::unique_ptr<Wire> wire, WaitLimits limits = {});
  // Finishes what was posted, then the wire (which waits for every rank if it is MPI).
  ~RankWorker();
  RankWorker(const RankWorker&) = delete;
  RankWorker& operator=(const RankWorker&) = delete;

  Wire& wire() const { return *wire_; }
  int rank() const { return wire_->rank(); }
  int size() const { return wire_->size(); }

  int new_queue() { return next_queue_++; }
  // Runs the coroutine that `make` returns. `make` and what it captures live as long as the task
  // and end on the worker. The future throws what the task threw.
  std::future<void> post(int queue, std::function<RankTask()> make, TaskName name = {});

  // For tasks: whether all of them are complete.
  bool completed(Transfers& transfers);

  // Ends every rank. Returns only if the wire could not do it within a second.
  void abort(int exit_code);

 private:
  struct Job {
    std::function<RankTask()> make;
    std::promise<void> done;
    std::unique_ptr<RankTask> task;
    TaskName name;
    WaitClock clock;
    Transfers* waits_for = nullptr;  // what it found incomplete when it last ran
  };

  void run(std::promise<void> started);
  void loop();
  bool advance();        // every queue's first task by one step; whether there was any
  void look_at_waits();  // prints or ends what the limits say

  std::unique_ptr<Wire> wire_;
  WaitLimits limits_;
  std::atomic<int> next_queue_{0};
  std::mutex mutex_;  // guards inbox_, stopping_ and abort_code_
  std::condition_variable posted_;
  std::vector<std::pair<int, Job>> inbox_;
  bool stopping_ = false;
  int abort_code_ = 0;
  std::map<int, std::deque<Job>> queues_;  // the worker's own
  bool moved_ = false;                     // whether any transfer completed in this round
  Transfers* incomplete_ = nullptr;        // what the task that runs has found incomplete
  int idle_rounds_ = 0;
  std::thread thread_;
};

}  // namespace veil
