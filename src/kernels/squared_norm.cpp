#include "kernels/squared_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/lane_sum.h"
#include "kernels/launch.h"
#include "kernels/tensor_arguments.h"
#include "tensor/category.h"
#include "tensor/stream.h"

namespace veil {
namespace {

// Pieces of one size, so that their sums do not depend on the threads.
template <typename T>
double squared_norm_cpu(const T* x, int64_t numel) {
  constexpr int64_t kPiece = 1 << 14;
  std::vector<double> sums(static_cast<size_t>((numel + kPiece - 1) / kPiece));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 2, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const T* piece = x + p * kPiece;
      sums[static_cast<size_t>(p)] =
          lane_sum<double>(std::min(kPiece, numel - p * kPiece), [piece](int64_t j) {
            return static_cast<double>(piece[j]) * static_cast<double>(piece[j]);
          });
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

int64_t squared_norm_scratch_bytes(int64_t numel, bool on_gpu) {
  return on_gpu ? 8 * launch::squared_norm_blocks(numel) : 0;
}

void add_squared_norm(const Tensor& x, const Tensor& total) {
  VEIL_CHECK(x.is_contiguous() && fits(total, at::kDouble, 1), "squared norm of a strided tensor");
  if (x.is_cuda()) {
    CategoryScope scope(Category::temporary);
    const Tensor partial =
        empty_tensor({launch::squared_norm_blocks(x.numel())}, at::kDouble, x.device());
    launch::add_squared_norm({x.data_ptr(), element_of(x), x.numel(), partial.data_ptr<double>(),
                              total.data_ptr<double>(), Stream::current(x.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, x.scalar_type(), "add_squared_norm",
      [&] { total.data_ptr<double>()[0] += squared_norm_cpu(x.data_ptr<scalar_t>(), x.numel()); });
}

Tensor knob(const Tensor& knobs, double StepKnobs::*field) {
  const StepKnobs at;
  return knobs.narrow(0, &(at.*field) - &at.update.learning_rate, 1);
}

void clip_scale(const Tensor& knobs) {
  VEIL_CHECK(knobs.scalar_type() == at::kDouble && knobs.numel() == kStepKnobs,
             "knobs of {} numbers", knobs.numel());
  auto* at = reinterpret_cast<StepKnobs*>(knobs.data_ptr<double>());
  if (knobs.is_cuda()) {
    launch::clip_scale(at, Stream::current(knobs.device()).handle());
    return;
  }
  at->update.scale = clipped_scale(*at);
}

}  // namespace veil
