#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "base/error.h"
#include "tensor/capture_keeps.h"
#include "tensor/graph.h"

namespace veil {

struct Graph::State {
  std::vector<std::shared_ptr<void>> keeps;  // outlives the graph below
  at::cuda::CUDAGraph graph;
};

Graph::Graph(std::unique_ptr<State> state) : state_(std::move(state)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(Device device, const std::function<void()>& work, Pool* pool) {
  VEIL_CHECK(device.is_cuda(), "graphs are captured on a GPU");
  synchronize(device);
  auto state = std::make_unique<State>();
  const c10::MempoolId_t shared = pool ? c10::MempoolId_t{pool->first, pool->second} : c10::MempoolId_t{0, 0};
  state->graph.capture_begin(shared, cudaStreamCaptureModeThreadLocal);
  capture_keeps = &state->keeps;
  try {
    work();
  } catch (...) {
    capture_keeps = nullptr;
    try {
      state->graph.capture_end();
    } catch (...) {  // the first failure is the one to tell
    }
    throw;
  }
  capture_keeps = nullptr;
  state->graph.capture_end();
  if (pool) *pool = {state->graph.pool().first, state->graph.pool().second};
  synchronize(device);
  return Graph(std::move(state));
}

void Graph::replay() {
  state_->graph.replay();
}

}  // namespace veil
