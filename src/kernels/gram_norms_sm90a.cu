#include "kernels/sample_boxes.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

using namespace hopper;

constexpr int kGramSide = 64 * kGroups, kGramStages = 6;
constexpr int kGramBytes = 2 * kGramSide * 128;  // of a stage

struct GramMaps {
  CUtensorMap a[kMostGramReports], g[kMostGramReports][kMostGramPieces];
};

template <typename T>
__global__ void __launch_bounds__(kThreads, 1)
    gram_kernel(const __grid_constant__ GramMaps maps, const __grid_constant__ GramNorms n) {
  extern __shared__ uint8_t raw[];
  __shared__ Stages<kGramStages> stages;
  __shared__ double sums[kMostGramPieces][4 * kGroups][2];
  uint8_t* memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
  if (threadIdx.x == 0) stages.begin(kGroups);
  __syncthreads();
  // Tiles of the lower half, row by row.
  int row = 0, column = static_cast<int>(blockIdx.x);
  while (column > row) column -= ++row;
  const bool diagonal = row == column;
  const int sample = static_cast<int>(blockIdx.y), which = static_cast<int>(blockIdx.z);
  const GramReport& report = n.report[which];
  const auto width_of = [&](int piece) {  // -1: of a
    return static_cast<int>(piece < 0 ? report.columns : report.piece[piece].count);
  };
  Turn turn;
  if (threadIdx.x < kGroup) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      for (int m = -1; m < report.pieces; ++m) {
        const CUtensorMap* map = m < 0 ? &maps.a[which] : &maps.g[which][m];
        const int width = width_of(m);
        for (int k = 0; k < width; k += kBox) {
          barrier_wait(&stages.empty[turn.stage], turn.phase ^ 1);
          uint64_t* full = &stages.full[turn.stage];
          barrier_expect(full, diagonal ? kGramBytes / 2 : kGramBytes);
          uint8_t* to = memory + turn.stage * kGramBytes;
          load_box(to, map, full, k, row * kGramSide, sample);
          if (!diagonal) load_box(to + kGramBytes / 2, map, full, k, column * kGramSide, sample);
          turn.next<kGramStages>();
        }
      }
    }
  } else {
    more_registers<232>();
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup - 1, 0),
              lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) % kGroup / 32;
    const auto multiply = [&](float(&part)[64], int add) {
      barrier_wait(&stages.full[turn.stage], turn.phase);
      const uint8_t* rows = memory + turn.stage * kGramBytes;
      const uint8_t* columns = diagonal ? rows : rows + kGramBytes / 2;
      products_begin();
#pragma unroll
      for (int k = 0; k < kBox / 16; ++k)
        product<T, 0>(part, matrix_at(rows + group * kBoxBytes + k * 32, 16, 1024),
                      matrix_at(columns + k * 32, 16, 1024), k == 0 ? add : 1);
      products_commit();
      const int stage = turn.stage;
      turn.next<kGramStages>();
      return stage;
    };
    const auto release = [&](int stage) {
      if (threadIdx.x % kGroup == 0) barrier_arrive(&stages.empty[stage], 0);
    };
    // Tensor cores cut off what does not fit into a sum instead of rounding it, so a sum of many
    // products comes out too small. They add up kGramColumns columns, and fp32 additions the rest.
    static_assert(kGramColumns == 2 * kBox);
    const auto gram = [&](float(&of)[64], int width) {
      float part[64];
#pragma unroll
      for (int k = 0; k < 64; ++k) of[k] = 0;
      // One group waits for its sums while the other's are being made: it begins with one box.
      int boxes = group == 0 ? 2 : 1;
#pragma unroll 1
      for (int k = 0; k < width;) {
        const int first = multiply(part, 0);
        int second = -1;
        if (boxes == 2 && k + kBox < width) second = multiply(part, 1);
        k += boxes * kBox;
        boxes = 2;
        products_wait<0>();
        release(first);
        if (second >= 0) release(second);
#pragma unroll
        for (int j = 0; j < 64; ++j) of[j] += part[j];
      }
    };
    float of_a[64], of_g[64];
    gram(of_a, width_of(-1));
    for (int m = 0; m < report.pieces; ++m) {
      gram(of_g, width_of(m));
      double product_sum = 0, lengths = 0;
#pragma unroll
      for (int k = 0; k < 64; k += 4)
        product_sum += static_cast<double>(of_a[k] * of_g[k] + of_a[k + 1] * of_g[k + 1] +
                                           of_a[k + 2] * of_g[k + 2] + of_a[k + 3] * of_g[k + 3]);
      if (diagonal) {
#pragma unroll
        for (int k = 0; k < 64; ++k) {
          const int r = group * 64 + warp * 16 + lane / 4 + k % 4 / 2 * 8,
                    c = k / 4 * 8 + lane % 4 * 2 + k % 2;
          if (r == c) lengths += sqrt(static_cast<double>(of_a[k]) * static_cast<double>(of_g[k]));
        }
      }
#pragma unroll
      for (int other = 16; other > 0; other /= 2) {
        product_sum += __shfl_down_sync(0xffffffffu, product_sum, other);
        lengths += __shfl_down_sync(0xffffffffu, lengths, other);
      }
      if (lane == 0) {
        sums[m][group * 4 + warp][0] = diagonal ? product_sum : 2 * product_sum;
        sums[m][group * 4 + warp][1] = lengths;
      }
    }
    asm volatile("bar.sync 1, %0;" ::"n"(kGroup * kGroups) : "memory");
    const int of = static_cast<int>(threadIdx.x) - kGroup;  // of a piece's two sums
    if (of < 2 * report.pieces) {
      double sum = 0;
      for (int w = 0; w < 4 * kGroups; ++w) sum += sums[of / 2][w][of % 2];
      n.partial[gram_partial(n, which, of / 2, sample, blockIdx.x, gridDim.x) + of % 2] = sum;
    }
  }
}

// A block for each piece, sample and report adds the tiles' sums in order.
__global__ void __launch_bounds__(kThreads)
    gram_finish_kernel(const __grid_constant__ GramNorms n, int64_t tiles) {
  __shared__ double lanes[2 * 32];
  const GramReport& report = n.report[blockIdx.z];
  if (static_cast<int>(blockIdx.x) >= report.pieces) return;
  double sums[2] = {0, 0};
  for (int64_t t = threadIdx.x; t < tiles; t += kThreads)
    for (int which = 0; which < 2; ++which)
      sums[which] +=
          n.partial[gram_partial(n, blockIdx.z, blockIdx.x, blockIdx.y, t, tiles) + which];
  block_sum(sums, lanes);
  if (threadIdx.x == 0)
    n.squared[report.piece[blockIdx.x].row * n.squared_stride + report.first_sample + blockIdx.y] +=
        sums[0] + n.rounding * sums[1] * sums[1];
}

template <typename T>
void run_gram_norms(const GramNorms& n) {
  GramMaps maps;
  for (int r = 0; r < n.reports; ++r) {
    const GramReport& report = n.report[r];
    maps.a[r] = map_of(report.a, n.element, n.samples, n.tokens, report.columns, kGramSide);
    for (int m = 0; m < report.pieces; ++m) {
      const SamplePiece& piece = report.piece[m];
      const SampleMatrix of = {static_cast<const T*>(report.g.data) + piece.column,
                               report.g.sample_stride, report.g.token_stride};
      maps.g[r][m] = map_of(of, n.element, n.samples, n.tokens, piece.count, kGramSide);
    }
  }
  const int64_t tiles = gram_norm_tiles(n.tokens);
  constexpr int kBytes = kGramStages * kGramBytes + 1024;
  allow_shared(gram_kernel<T>, kBytes);
  const auto stream = static_cast<cudaStream_t>(n.stream);
  const auto samples = static_cast<unsigned>(n.samples), reports = static_cast<unsigned>(n.reports);
  gram_kernel<T>
      <<<dim3(static_cast<unsigned>(tiles), samples, reports), kThreads, kBytes, stream>>>(maps, n);
  check_launch("gram_norms");
  gram_finish_kernel<<<dim3(kMostGramPieces, samples, reports), kThreads, 0, stream>>>(n, tiles);
  check_launch("gram_norms");
}

}  // namespace

void gram_norms(const GramNorms& norms) {
  if (norms.element == Element::bf16) {
    run_gram_norms<__nv_bfloat16>(norms);
  } else {
    run_gram_norms<__half>(norms);
  }
}

}  // namespace veil::launch
