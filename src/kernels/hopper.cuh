// Tensor cores and the copy engine of Hopper GPUs, as the instructions that there are for them (PTX
// ISA, "wgmma", "cp.async.bulk.tensor" and "mbarrier"). For sm_90a alone.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

namespace veil::launch::hopper {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers in shared memory: a phase ends when all have arrived and all bytes have come.

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals));
}
// After barrier_init, before anyone else uses them.
__device__ __forceinline__ void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and says how many bytes are to come.
__device__ __forceinline__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// At the barrier in the same place of a block of the cluster.
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(block)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra again;\n"
      "ended:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ uint32_t block_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// Copies a box of a matrix [samples, tokens, columns]; what is outside it comes as zeros.
__device__ __forceinline__ void load_box(void* to, const CUtensorMap* from, uint64_t* barrier,
                                         int column, int token, int sample) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(from), "r"(shared_address(barrier)), "r"(column), "r"(token), "r"(sample)
      : "memory");
}
// To the same place of the cluster's blocks that `blocks` has a bit for.
__device__ __forceinline__ void load_box_for(void* to, const CUtensorMap* from, uint64_t* barrier,
                                             int column, int token, int sample, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(from), "r"(shared_address(barrier)), "r"(column), "r"(token), "r"(sample), "h"(blocks)
      : "memory");
}

// Copies a box to a matrix [samples, rows, columns]; what is outside it is left out. By one thread,
// after copies_may_read() by all that wrote to the box.
__device__ __forceinline__ void store_box(const CUtensorMap* to, const void* from, int column,
                                          int row, int sample) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          to),
      "r"(shared_address(from)), "r"(column), "r"(row), "r"(sample)
      : "memory");
}
__device__ __forceinline__ void copies_may_read() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but the last kPending of what was committed have been read, and their places can be
// written to.
template <int kPending>
__device__ __forceinline__ void stores_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Four matrices of eight rows of 16 bytes: lane l has the address of row l % 8 of matrix l / 8, and
// of each matrix the l-th word.
__device__ __forceinline__ void store_matrices(void* row, const uint32_t (&words)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
}
// Among the threads that name the barrier.
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// A matrix in shared memory whose rows of 128 bytes the copy engine has swizzled. Byte distances:
// `leading` between blocks of 64 columns (where columns are rows or columns of the product; not
// used where they are summed over), `stride` between groups of eight rows.
__device__ __forceinline__ uint64_t matrix_at(const void* pointer, uint32_t leading,
                                              uint32_t stride) {
  const auto field = [](uint32_t value) { return static_cast<uint64_t>((value & 0x3ffff) >> 4); };
  return field(shared_address(pointer)) | field(leading) << 16 | field(stride) << 32 |
         uint64_t{1} << 62;
}

__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operands of a product: the numbers of its registers, and the registers.
#define VEIL_FIRST_64                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"           \
  ", "                                                                             \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
  ", "                                                                             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", "                                                                             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define VEIL_SECOND_64                                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"             \
  ", "                                                                                         \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"             \
  ", "                                                                                         \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", "                                                                                         \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define VEIL_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define VEIL_D16(i) VEIL_D4(i), VEIL_D4(i + 4), VEIL_D4(i + 8), VEIL_D4(i + 12)
#define VEIL_D64(i) VEIL_D16(i), VEIL_D16(i + 16), VEIL_D16(i + 32), VEIL_D16(i + 48)

#define VEIL_PRODUCT_128(TYPE)                                                        \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                    \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" VEIL_FIRST_64 \
      "}, %64, %65, p, 1, 1, %67, %67;\n}\n"                                          \
      : VEIL_D64(0)                                                                   \
      : "l"(x), "l"(y), "r"(add), "n"(kColumnsAreRows))
#define VEIL_PRODUCT_256(TYPE)                                                        \
  asm volatile(                                                                       \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                   \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" VEIL_FIRST_64 \
      ", " VEIL_SECOND_64 "}, %128, %129, p, 1, 1, %131, %131;\n}\n"                  \
      : VEIL_D64(0), VEIL_D64(64)                                                     \
      : "l"(x), "l"(y), "r"(add), "n"(kColumnsAreRows))

// d (+)= x y, 64 by N, over 16 of what is summed over. kColumnsAreRows: a matrix's columns are rows (x)
// or columns (y) of the product, otherwise they are summed over.
template <typename T, int kColumnsAreRows>
__device__ __forceinline__ void product(float (&d)[64], uint64_t x, uint64_t y, int add) {
  if constexpr (std::is_same_v<T, __half>) {
    VEIL_PRODUCT_128("f16");
  } else {
    VEIL_PRODUCT_128("bf16");
  }
}
template <typename T, int kColumnsAreRows>
__device__ __forceinline__ void product(float (&d)[128], uint64_t x, uint64_t y, int add) {
  if constexpr (std::is_same_v<T, __half>) {
    VEIL_PRODUCT_256("f16");
  } else {
    VEIL_PRODUCT_256("bf16");
  }
}
#undef VEIL_PRODUCT_128
#undef VEIL_PRODUCT_256
#undef VEIL_D64
#undef VEIL_D16
#undef VEIL_D4
#undef VEIL_SECOND_64
#undef VEIL_FIRST_64

// Adds where the numbers are, without waiting for them.
__device__ __forceinline__ void add_four(float* to, const float4& x) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w)
               : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace veil::launch::hopper
