// A captured sequence of device work that replays with one launch (a CUDA graph).
#pragma once

#include <functional>
#include <memory>

#include "tensor/device.h"

namespace veil {

class Graph {
 public:
  // Runs `work` once under capture on the calling thread's current stream, which must not be the default one: nothing executes until replay. `work` may fork
  // to other streams by ordering markers and must join them all; it may neither synchronise nor read device values. Throws LibTorch's error if capture
  // fails. Graphs that share a `pool` (a default-constructed one starts a new pool) hand memory to each other, so they must replay in the order of
  // their capture.
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
