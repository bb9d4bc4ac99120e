// What a graph that is being captured must keep alive: events that its replays record. Included by the CUDA files of this folder only.
#pragma once

#include <memory>
#include <vector>

namespace veil {

// Where the calling thread's capture collects them; null outside a capture.
inline thread_local std::vector<std::shared_ptr<void>>* capture_keeps = nullptr;

}  // namespace veil
