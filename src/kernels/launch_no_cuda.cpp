#include "base/error.h"
#include "kernels/launch.h"

namespace veil::launch {

void random_fill(const RandomFill&) { VEIL_CHECK(false, "a CUDA kernel in a build without CUDA"); }
void update(const Update&) { VEIL_CHECK(false, "a CUDA kernel in a build without CUDA"); }

}  // namespace veil::launch
