// Work of a rank's communication thread, written as coroutines.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace veil {

// A coroutine that the worker resumes until it is done. `co_await kTurn` lets the other queues run.
class RankTask {
 public:
  struct promise_type {
    std::exception_ptr error;
    RankTask get_return_object() {
      return RankTask(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };
  explicit RankTask(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  RankTask(RankTask&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  RankTask& operator=(RankTask&&) = delete;
  ~RankTask() {
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

}  // namespace veil
