#include "kernels/strip_sums.cuh"

namespace veil::launch {
namespace {

template <typename T>
struct TokenRows {
  const T* x;
  int64_t batch_stride, token_stride;

  struct Here {
    const T* from;
    int64_t stride;
    template <int kWide>
    __device__ __forceinline__ Pack<T, kWide> read(int64_t row) const {
      return load_pack<kWide>(from + row * stride);
    }
    template <int kWide>
    __device__ __forceinline__ Pack<T, kWide> store(int64_t, const Pack<T, kWide>& it) const {
      return it;
    }
  };
  __device__ __forceinline__ Here at(int64_t sample, int64_t column) const {
    return {x + sample * batch_stride + column, token_stride};
  }
};

template <typename T>
struct Run {
  static void run(const TokenSum& s) {
    constexpr int kWide = kWideOf<T>;
    const bool packs = aligned(s.x) && s.width % kWide == 0 && s.batch_stride % kWide == 0 &&
                       s.token_stride % kWide == 0;
    sum_strips<T>(TokenRows<T>{static_cast<const T*>(s.x), s.batch_stride, s.token_stride}, s.batch,
                  s.tokens, s.width, packs, s.out, s.partial, s.stream);
  }
};

}  // namespace

void token_sum(const TokenSum& sum) {
  for_element<Run>(sum.element, sum);
}

}  // namespace veil::launch
