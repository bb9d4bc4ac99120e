#include "kernels/random.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/launch.h"
#include "kernels/random_values.h"
#include "kernels/tensor_arguments.h"
#include "tensor/stream.h"

namespace veil {
namespace {

template <typename T>
void fill_cpu(T* out, int64_t numel, bool normal, float scale, uint64_t seed, uint32_t domain,
              int64_t first_index) {
  at::parallel_for(0, numel, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const auto index = static_cast<uint64_t>(first_index + i);
      const Four four =
          normal ? normal_four(seed, domain, index / 4) : uniform_four(seed, domain, index / 4);
      for (uint64_t k = index % 4; k < 4 && i < end; ++k, ++i)
        out[i] = static_cast<T>(four.value[k] * scale);
    }
  });
}

void fill(const Tensor& out, bool normal, double scale, uint64_t seed, RandomDomain domain,
          int64_t first_index) {
  VEIL_CHECK(out.is_contiguous() && first_index >= 0,
             "random fill of a strided tensor or from index {}", first_index);
  const auto key = static_cast<uint32_t>(domain);
  if (out.is_cuda()) {
    launch::random_fill({out.data_ptr(), element_of(out), out.numel(), normal,
                         static_cast<float>(scale), seed, key, first_index,
                         Stream::current(out.device()).handle()});
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "random_fill", [&] {
    fill_cpu(out.data_ptr<scalar_t>(), out.numel(), normal, static_cast<float>(scale), seed, key,
             first_index);
  });
}

}  // namespace

void fill_uniform(const Tensor& out, double half_width, uint64_t seed, RandomDomain domain,
                  int64_t first_index) {
  fill(out, false, half_width, seed, domain, first_index);
}

void fill_normal(const Tensor& out, double deviation, uint64_t seed, RandomDomain domain,
                 int64_t first_index) {
  fill(out, true, deviation, seed, domain, first_index);
}

void fill_whole(const Tensor& out, int64_t below, uint64_t seed, RandomDomain domain,
                int64_t first_index) {
  VEIL_CHECK(out.scalar_type() == at::kLong && below > 0, "whole numbers below {} as {}", below,
             c10::toString(out.scalar_type()));
  const Tensor host = out.is_cuda() ? empty_tensor(out.sizes(), at::kLong, cpu_device()) : out;
  int64_t* values = host.data_ptr<int64_t>();
  for (int64_t i = 0; i < host.numel(); ++i) {
    const auto index = static_cast<uint64_t>(first_index + i);
    const Philox4 random = philox4x32(seed, index, static_cast<uint32_t>(domain));
    values[i] = static_cast<int64_t>((uint64_t{random.word[0]} << 16 | random.word[1] >> 16) %
                                     static_cast<uint64_t>(below));
  }
  if (out.is_cuda()) out.copy_(host);
}

}  // namespace veil
