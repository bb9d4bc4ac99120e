#include "base/clock.h"
#include "base/error.h"
#include "tensor/stream.h"

namespace veil {

struct Marker::State {
  bool timed;
  double host_ms = 0;
};

Stream Stream::create(Device device) {
  return Stream(device, nullptr, 0);
}
Stream Stream::current(Device device) {
  return Stream(device, nullptr, 0);
}
StreamGuard::StreamGuard(const Stream& stream) : previous_(stream) {}
StreamGuard::~StreamGuard() = default;

Marker Marker::ordering(Device) {
  Marker marker;
  marker.state_ = std::make_shared<State>(State{false});
  return marker;
}

Marker Marker::timed(Device) {
  Marker marker;
  marker.state_ = std::make_shared<State>(State{true});
  return marker;
}

void Marker::record() {
  VEIL_CHECK(state_, "an empty marker was recorded");
  state_->host_ms = steady_ms();
}

void Marker::wait() const {
  VEIL_CHECK(state_ && !state_->timed, "a timed or empty marker cannot order streams");
}
void Marker::synchronize() const {}

double Marker::ms_since(const Marker& earlier) const {
  VEIL_CHECK(state_ && earlier.state_ && state_->timed && earlier.state_->timed,
             "time is read between two timed markers");
  return state_->host_ms - earlier.state_->host_ms;
}

struct Graph::State {};
Graph::Graph(std::unique_ptr<State> state) : state_(std::move(state)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(Device, const std::function<void()>&, Pool*) {
  throw MissingBackend("graphs need a GPU and a build with CUDA: turn graphs off");
}
void Graph::replay() {}

}  // namespace veil
