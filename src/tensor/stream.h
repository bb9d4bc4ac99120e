// Queues of device work, moments on them, and captured sequences of it. On CPU there is one queue,
// the calling thread: waits are empty, a moment is the steady clock's, and nothing is captured.
#pragma once

#include <functional>
#include <memory>

#include "tensor/device.h"

namespace veil {

// A queue of device work. Copies share the queue.
class Stream {
 public:
  static Stream create(Device device);   // a new queue, next to the current one
  static Stream current(Device device);  // the calling thread's
  Device device() const { return device_; }
  void* handle() const { return handle_; }  // the cudaStream_t; null on CPU

 private:
  friend class StreamGuard;
  Stream(Device device, void* handle, int64_t id) : device_(device), handle_(handle), id_(id) {}
  Device device_;
  void* handle_;
  int64_t id_;  // LibTorch's packed stream id
};

// Makes a stream the calling thread's current one for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

// A moment on a stream. Copies share the moment.
//
// An ordering marker joins streams; a timed marker is read by the host. Inside a captured graph an
// ordering marker becomes an edge, and a timed marker is recorded again at each replay; therefore
// one marker cannot be both.
class Marker {
 public:
  Marker() = default;
  static Marker ordering(Device device);
  static Marker timed(Device device);

  bool empty() const { return state_ == nullptr; }
  void record();  // at the end of the calling thread's current stream
  // what is issued next to the current stream starts after this moment; the host does not wait
  void wait() const;
  void synchronize() const;  // the host waits for the moment

  // Milliseconds from `earlier` to this moment; both timed and recorded. The host waits for both.
  double ms_since(const Marker& earlier) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// A captured sequence of device work that replays with one launch (a CUDA graph).
class Graph {
 public:
  // Runs `work` once under capture on the calling thread's current stream, which must not be the
  // default one: nothing executes until replay. `work` may fork to other streams by ordering
  // markers and must join them all; it may neither synchronise nor read device values. Throws
  // LibTorch's error if capture fails. Graphs that share a `pool` (a default-constructed one starts
  // a new pool) hand memory to each other, so they must replay in the order of their capture.
  struct Pool {
    unsigned long long first = 0, second = 0;
  };
  static Graph capture(Device device, const std::function<void()>& work, Pool* pool = nullptr);

  void replay();  // on the calling thread's current stream

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

 private:
  struct State;
  explicit Graph(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace veil
