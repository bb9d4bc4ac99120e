#include "base/error.h"
#include "kernels/launch.h"

namespace veil::launch {

namespace {
void not_built() {
  check_failed(__FILE__, __LINE__, "not reached", fmt::format("a CUDA kernel in a build without CUDA"));
}
}  // namespace

void random_fill(const RandomFill&) {
  not_built();
}
void update(const Update&) {
  not_built();
}
void squared_error(const SquaredError&) {
  not_built();
}
void column_sum(const ColumnSum&) {
  not_built();
}
void clip_scale(double*, const double*, const double*, void*) {
  not_built();
}
void add_losses(const double*, int64_t, double*, void*) {
  not_built();
}

}  // namespace veil::launch
