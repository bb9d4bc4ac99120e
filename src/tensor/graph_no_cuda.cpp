#include "base/error.h"
#include "tensor/graph.h"

namespace veil {

struct Graph::State {};
Graph::Graph(std::unique_ptr<State> state) : state_(std::move(state)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(Device, const std::function<void()>&, Pool*) {
  throw MissingBackend("graphs need a GPU and a build with CUDA: pass --graph off");
}
void Graph::replay() {}

}  // namespace veil
