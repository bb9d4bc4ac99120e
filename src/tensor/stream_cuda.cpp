#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// What a graph that is being captured must keep alive: events that its replays record. Null outside
// the calling thread's capture.
thread_local std::vector<std::shared_ptr<void>>* capture_keeps = nullptr;

}  // namespace

struct Marker::State {
  Device device;
  bool timed;
  double host_ms = 0;  // CPU
  cudaEvent_t event = nullptr;

  State(Device where, bool is_timed) : device(where), timed(is_timed) {
    if (device.is_cuda())
      C10_CUDA_CHECK(
          cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (event) C10_CUDA_CHECK_WARN(cudaEventDestroy(event));
  }
};

namespace {

c10::cuda::CUDAStream unwrap(Device device, int64_t id) {
  return c10::cuda::CUDAStream(c10::cuda::CUDAStream::UNCHECKED,
                               c10::Stream(c10::Stream::UNSAFE, device, id));
}

}  // namespace

Stream Stream::create(Device device) {
  if (!device.is_cuda()) return Stream(device, nullptr, 0);
  const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index());
  return Stream(device, stream.stream(), stream.unwrap().id());
}

Stream Stream::current(Device device) {
  if (!device.is_cuda()) return Stream(device, nullptr, 0);
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  return Stream(device, stream.stream(), stream.unwrap().id());
}

StreamGuard::StreamGuard(const Stream& stream) : previous_(Stream::current(stream.device())) {
  if (stream.device().is_cuda())
    c10::cuda::setCurrentCUDAStream(unwrap(stream.device(), stream.id_));
}

StreamGuard::~StreamGuard() {
  if (previous_.device().is_cuda())
    c10::cuda::setCurrentCUDAStream(unwrap(previous_.device(), previous_.id_));
}

Marker Marker::ordering(Device device) {
  Marker marker;
  marker.state_ = std::make_shared<State>(device, false);
  return marker;
}

Marker Marker::timed(Device device) {
  Marker marker;
  marker.state_ = std::make_shared<State>(device, true);
  return marker;
}

void Marker::record() {
  VEIL_CHECK(state_, "an empty marker was recorded");
  if (!state_->event) {
    state_->host_ms = steady_ms();
    return;
  }
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(state_->device.index()).stream();
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  if (state_->timed) C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &capturing));
  const bool external = capturing == cudaStreamCaptureStatusActive;
  if (external && capture_keeps) capture_keeps->push_back(state_);
  C10_CUDA_CHECK(cudaEventRecordWithFlags(
      state_->event, stream, external ? cudaEventRecordExternal : cudaEventRecordDefault));
}

void Marker::wait() const {
  VEIL_CHECK(state_ && !state_->timed, "a timed or empty marker cannot order streams");
  if (!state_->event) return;
  C10_CUDA_CHECK(cudaStreamWaitEvent(
      c10::cuda::getCurrentCUDAStream(state_->device.index()).stream(), state_->event, 0));
}

void Marker::synchronize() const {
  if (state_ && state_->event) C10_CUDA_CHECK(cudaEventSynchronize(state_->event));
}

double Marker::ms_since(const Marker& earlier) const {
  VEIL_CHECK(state_ && earlier.state_ && state_->timed && earlier.state_->timed,
             "time is read between two timed markers");
  if (!state_->event) return state_->host_ms - earlier.state_->host_ms;
  synchronize();
  earlier.synchronize();
  float ms = 0;
  C10_CUDA_CHECK(cudaEventElapsedTime(&ms, earlier.state_->event, state_->event));
  return ms;
}

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
  const c10::MempoolId_t shared =
      pool ? c10::MempoolId_t{pool->first, pool->second} : c10::MempoolId_t{0, 0};
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
