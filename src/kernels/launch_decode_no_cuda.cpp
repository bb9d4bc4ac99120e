#include "base/error.h"
#include "kernels/launch_decode.h"

namespace veil::launch {

void cache_append(const CacheAppend&) {
  check_failed(__FILE__, __LINE__, "not reached", "a CUDA kernel in a build without CUDA");
}
void draw_tokens(const TokenDraw&) {
  check_failed(__FILE__, __LINE__, "not reached", "a CUDA kernel in a build without CUDA");
}

}  // namespace veil::launch
