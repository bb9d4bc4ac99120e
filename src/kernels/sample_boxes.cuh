// Pipelines over matrices of samples' tokens, for kernels of Hopper GPUs: boxes that the copy
// engine fetches into stages, from which groups of warps multiply.
#pragma once

#include <stdexcept>
#include <string>

#include "kernels/hopper.cuh"
#include "kernels/launch.h"

namespace veil::launch::hopper {

// Matrices come in boxes of 64 tokens or columns by 128 bytes.
constexpr int kBox = 64, kBoxBytes = kBox * 128;
// The first warps fetch, the other two groups of four multiply.
constexpr int kGroup = 128, kGroups = 2, kThreads = kGroup * (1 + kGroups);

// The stages of a pipeline: what is fetched waits until both groups are done with what was there.
template <int kStages>
struct Stages {
  uint64_t full[kStages], empty[kStages];
  // By one thread, before any other uses them. `groups`: that are done with a stage before it is
  // filled again.
  __device__ __forceinline__ void begin(int groups) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(&full[s], 1);
      barrier_init(&empty[s], groups);
    }
    barriers_ready();
  }
};

struct Turn {
  int stage = 0;
  uint32_t phase = 0;
  template <int kStages>
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// ---- on the host

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

inline Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess)
      function = nullptr;
    return reinterpret_cast<Encode>(function);
  }();
  return found;
}

inline CUtensorMap map_of(const SampleMatrix& x, Element element, int64_t samples, int64_t tokens,
                          int64_t columns, int box_tokens) {
  CUtensorMap map;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(tokens),
                               static_cast<cuuint64_t>(samples)},
                   strides[2] = {static_cast<cuuint64_t>(x.token_stride) * 2,
                                 static_cast<cuuint64_t>(x.sample_stride) * 2};
  const cuuint32_t box[3] = {kBox, static_cast<cuuint32_t>(box_tokens), 1}, steps[3] = {1, 1, 1};
  const CUresult result = encoder()(
      &map,
      element == Element::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      3, const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("[cuTensorMapEncodeTiled] error " + std::to_string(result));
  return map;
}

template <typename Kernel>
void allow_shared(Kernel kernel, int bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
      cudaSuccess)
    check_launch("cudaFuncSetAttribute");
}

inline int processors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace veil::launch::hopper
