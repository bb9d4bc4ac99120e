// The one thread of the process that talks to MPI. Included by *_mpi.cpp only.
//
// Work is written as coroutines: a task posts non-blocking MPI calls and suspends while they are
// under way. Each queue runs its tasks in order; queues advance side by side, so that two
// communicators are independent even if ranks post to them in different orders.
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C interface only
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace veil {

// A coroutine that the worker resumes until it is done. `co_await kTurn` lets the other queues run.
class MpiTask {
 public:
  struct promise_type {
    std::exception_ptr error;
    MpiTask get_return_object() {
      return MpiTask(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  explicit MpiTask(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  MpiTask(MpiTask&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  MpiTask& operator=(MpiTask&&) = delete;
  ~MpiTask() {
    if (handle_) handle_.destroy();
  }

  // Runs to the next suspension. True when the task has ended.
  bool resume() {
    if (!handle_.done()) handle_.resume();
    return handle_.done();
  }
  std::exception_ptr error() const { return handle_.promise().error; }

 private:
  std::coroutine_handle<promise_type> handle_;
};
inline constexpr std::suspend_always kTurn{};

// Throws std::runtime_error with MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

class MpiWorker {
 public:
  // Starts the thread and MPI on it. Throws where MPI cannot start.
  MpiWorker();
  // Finishes what was posted, then MPI (which waits for every rank).
  ~MpiWorker();
  MpiWorker(const MpiWorker&) = delete;
  MpiWorker& operator=(const MpiWorker&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  int new_queue() { return next_queue_++; }
  // Runs the coroutine that `make` returns. `make` and what it captures live as long as the task
  // and end on the worker. The future throws what the task threw.
  std::future<void> post(int queue, std::function<MpiTask()> make);

  // For tasks: whether all requests are complete; completed ones are cleared.
  bool completed(std::vector<MPI_Request>& requests);

  // Ends every rank. Returns only if MPI could not be reached within a second.
  void abort(int exit_code);

 private:
  struct Job {
    std::function<MpiTask()> make;
    std::promise<void> done;
    std::unique_ptr<MpiTask> task;
  };

  void run(std::promise<void> started);
  void loop();
  bool advance();  // every queue's first task by one step; whether there was any
  void rest();

  int rank_ = 0, size_ = 1;
  std::atomic<int> next_queue_{0};
  std::mutex mutex_;  // guards inbox_, stopping_ and abort_code_
  std::condition_variable posted_;
  std::vector<std::pair<int, Job>> inbox_;
  bool stopping_ = false;
  int abort_code_ = 0;
  std::map<int, std::deque<Job>> queues_;  // the worker's own
  bool moved_ = false;                     // whether any request completed in this round
  int idle_rounds_ = 0;
  std::thread thread_;
};

// The process's worker while a World that uses MPI lives; null otherwise. Set by that World.
MpiWorker* mpi_worker();
void set_mpi_worker(MpiWorker* worker);

}  // namespace veil
