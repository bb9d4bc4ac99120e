#include "kernels/sample_boxes.cuh"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

using namespace hopper;

// ---- sums of clipped gradients

constexpr int kSumRows = 64 * kGroups, kSumColumns = kKeptTile, kSumStages = 4, kCluster = 2;
constexpr int kSumBytes = (kSumRows + kSumColumns) / kBox * kBoxBytes;  // of a stage
constexpr int kBand = 8;  // pairs of rows of tiles that are worked on together

struct SumTile {
  int64_t row, column;
};

// Two blocks of a cluster have tiles one below the other and share what their columns need.
template <typename Product>
__device__ __forceinline__ SumTile sum_tile(const Product& p, uint32_t tile, int block) {
  const auto columns = static_cast<uint32_t>((p.columns + kSumColumns - 1) / kSumColumns),
             rows =
                 static_cast<uint32_t>((p.rows + kCluster * kSumRows - 1) / (kCluster * kSumRows)),
             band = tile / (kBand * columns), first = band * kBand,
             height = rows - first < kBand ? rows - first : kBand, in_band = tile - first * columns;
  return {int64_t{(first + in_band % height) * kCluster + block} * kSumRows,
          int64_t{in_band / height} * kSumColumns};
}

// Of four lanes q = 0 .. 3 each has columns 2q and 2q + 1 of two groups of eight (x, y and z, w). Lane
// q gets four columns in a row: from 4 (q % 2) on, of the first group if q < 2 and of the second
// otherwise.
__device__ __forceinline__ float4 trade(int lane, float x, float y, float z, float w) {
  // lanes 0 and 2, 1 and 3 swap groups, so that lanes 0 and 1 have the first: columns {0, 1, 4, 5} and
  // {2, 3, 6, 7}
  const bool upper = lane % 4 >= 2, odd = lane % 2 == 1;
  const float give_x = upper ? x : z, give_y = upper ? y : w;
  const float got_x = __shfl_xor_sync(0xffffffffu, give_x, 2),
              got_y = __shfl_xor_sync(0xffffffffu, give_y, 2);
  const float low_x = upper ? got_x : x, low_y = upper ? got_y : y,  // from lanes 0, 1
      high_x = upper ? z : got_x, high_y = upper ? w : got_y;        // from lanes 2, 3
  // lane 0 gives {4, 5} for lane 1's {2, 3}
  const float send_x = odd ? low_x : high_x, send_y = odd ? low_y : high_y;
  const float come_x = __shfl_xor_sync(0xffffffffu, send_x, 1),
              come_y = __shfl_xor_sync(0xffffffffu, send_y, 1);
  return odd ? make_float4(come_x, come_y, high_x, high_y)
             : make_float4(low_x, low_y, come_x, come_y);
}

// A tile's rows and columns of all of a sample's tokens, by one thread.
__device__ __forceinline__ void fetch_sample(const CUtensorMap& g, const CUtensorMap& a,
                                             const SumTile& at, int sample, int tokens, int block,
                                             uint8_t* memory, Stages<kSumStages>& stages,
                                             Turn& turn) {
  for (int t = 0; t < tokens; t += kBox) {
    barrier_wait(&stages.empty[turn.stage], turn.phase ^ 1);
    uint64_t* full = &stages.full[turn.stage];
    barrier_expect(full, kSumBytes);
    uint8_t* to = memory + turn.stage * kSumBytes;
#pragma unroll
    for (int b = 0; b < kSumRows / kBox; ++b)
      load_box(to + b * kBoxBytes, &g, full, static_cast<int>(at.row) + b * kBox, t, sample);
    to += kSumRows / kBox * kBoxBytes;
    constexpr int kShare = kSumColumns / kBox / kCluster;
#pragma unroll
    for (int b = 0; b < kShare; ++b) {
      const int box = block * kShare + b;
      load_box_for(to + box * kBoxBytes, &a, full, static_cast<int>(at.column) + box * kBox, t,
                   sample, (1 << kCluster) - 1);
    }
    turn.next<kSumStages>();
  }
}

// What was fetched, multiplied and added by one of the groups; without kAdd, `sum` is overwritten.
// `meanwhile` runs while the last products are made.
template <typename T, bool kAdd, typename Meanwhile>
__device__ __forceinline__ void add_sample(float (&sum)[128], int group, int tokens,
                                           const uint8_t* memory, Stages<kSumStages>& stages,
                                           Turn& turn, const Meanwhile& meanwhile) {
  const auto release = [&](int stage) {
    if (threadIdx.x % kGroup < kCluster) barrier_arrive(&stages.empty[stage], threadIdx.x % kGroup);
  };
  int before = -1;
#pragma unroll 1
  for (int t = 0; t < tokens; t += kBox) {
    barrier_wait(&stages.full[turn.stage], turn.phase);
    const uint8_t* from = memory + turn.stage * kSumBytes;
    products_begin();
#pragma unroll
    for (int k = 0; k < kBox / 16; ++k) {
      product<T, 1>(sum, matrix_at(from + group * kBoxBytes + k * 16 * 128, kBoxBytes, 1024),
                    matrix_at(from + kSumRows / kBox * kBoxBytes + k * 16 * 128, kBoxBytes, 1024),
                    kAdd || k > 0 || t > 0);
    }
    products_commit();
    products_wait<1>();
    if (before >= 0) release(before);
    before = turn.stage;
    turn.next<kSumStages>();
  }
  meanwhile();
  products_wait<0>();
  release(before);
}

template <typename T>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    clipped_product_kernel(const __grid_constant__ CUtensorMap g,
                           const __grid_constant__ CUtensorMap a, ClippedProduct p,
                           uint32_t tiles) {
  extern __shared__ uint8_t raw[];
  __shared__ Stages<kSumStages> stages;
  uint8_t* memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int block = static_cast<int>(block_in_cluster());
  if (threadIdx.x == 0) stages.begin(kGroups * kCluster);
  cluster_sync();
  const uint32_t first = blockIdx.x / kCluster, step = gridDim.x / kCluster;
  const int tokens = static_cast<int>(p.tokens);
  Turn turn;
  if (threadIdx.x < kGroup) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      for (uint32_t tile = first; tile < tiles; tile += step) {
        const SumTile at = sum_tile(p, tile, block);
        for (int64_t i = 0; i < p.samples; ++i) {
          if (p.coefficients[i] == 0) continue;
          fetch_sample(g, a, at, static_cast<int>(i), tokens, block, memory, stages, turn);
        }
      }
    }
  } else {
    more_registers<232>();
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup - 1, 0),
              lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) % kGroup / 32;
    float sum[128];
    for (uint32_t tile = first; tile < tiles; tile += step) {
      // The sum so far is that of the samples before, divided by the coefficient of the last one:
      // what a sample adds is not scaled one by one, and nothing is kept for it.
      double last = 0;
#pragma unroll
      for (int k = 0; k < 128; ++k) sum[k] = 0;
      for (int64_t i = 0; i < p.samples; ++i) {
        const double c = p.coefficients[i];
        if (c == 0) continue;
        const float ratio = static_cast<float>(last / c);
#pragma unroll
        for (int k = 0; k < 128; ++k) sum[k] *= ratio;
        last = c;
        add_sample<T, true>(sum, group, tokens, memory, stages, turn, [] {});
      }
      if (last == 0 && p.add) continue;
      // Of two neighbouring groups of eight columns a lane has two numbers each; pairs of lanes
      // trade them, so that each has four in a row.
      const SumTile at = sum_tile(p, tile, block);
      const float scale = static_cast<float>(last);
      const bool upper = lane % 4 >= 2;
      const int64_t row = at.row + group * 64 + warp * 16 + lane / 4,
                    column = at.column + lane % 2 * 4 + (upper ? 8 : 0);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool inside = row + half * 8 < p.rows;
        float* out = p.out + (row + half * 8) * p.columns + column;
#pragma unroll
        for (int j = 0; j < kSumColumns / 8; j += 2) {
          const float* here = sum + j * 4 + half * 2;
          const float4 four = trade(lane, here[0], here[1], here[4], here[5]);
          if (!inside || column + j * 8 >= p.columns) continue;
          const float4 value =
              make_float4(scale * four.x, scale * four.y, scale * four.z, scale * four.w);
          if (p.add) {
            add_four(out + j * 8, value);
          } else {
            *reinterpret_cast<float4*>(out + j * 8) = value;
          }
        }
      }
    }
  }
  __syncwarp();    // one lane fetched alone
  cluster_sync();  // what the other block still sends arrives in memory that is there
}

// ---- gradients that are kept, and their squared norms

// A group fills one box while what is in the other is copied out.
constexpr int kKeptPlaces = 2;
static_assert(kSumColumns / kBox % kKeptPlaces == 0);

template <typename T>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    kept_product_kernel(const __grid_constant__ CUtensorMap g,
                        const __grid_constant__ CUtensorMap a,
                        const __grid_constant__ CUtensorMap out, KeptProduct p, uint32_t tiles) {
  extern __shared__ uint8_t raw[];
  __shared__ Stages<kSumStages> stages;
  uint8_t* memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const int block = static_cast<int>(block_in_cluster());
  if (threadIdx.x == 0) stages.begin(kGroups * kCluster);
  cluster_sync();
  const uint32_t first = blockIdx.x / kCluster, step = gridDim.x / kCluster,
                 items = tiles * static_cast<uint32_t>(p.samples);
  const int tokens = static_cast<int>(p.tokens);
  Turn turn;
  if (threadIdx.x < kGroup) {
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      for (uint32_t item = first; item < items; item += step)
        fetch_sample(g, a, sum_tile(p, item % tiles, block), static_cast<int>(item / tiles), tokens,
                     block, memory, stages, turn);
    }
  } else {
    more_registers<232>();
    const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / kGroup - 1, 0),
              lane = static_cast<int>(threadIdx.x) % 32,
              warp = static_cast<int>(threadIdx.x) % kGroup / 32;
    const bool leads = threadIdx.x % kGroup == 0;
    uint8_t* const kept = memory + kSumStages * kSumBytes + group * kKeptPlaces * kBoxBytes;
    // of a row of 16, the eight columns that a lane names (hopper.cuh, store_matrices)
    uint8_t* const row_of_lane = kept + (warp * 16 + lane % 16) * 128;
    const int column_of_lane = lane / 16;
    float sum[128] = {};
    for (uint32_t item = first; item < items; item += step) {
      const uint32_t sample = item / tiles;
      SumTile at;
      add_sample<T, false>(sum, group, tokens, memory, stages, turn,
                           [&] { at = sum_tile(p, item - sample * tiles, block); });
      const int64_t row = at.row + group * 64;
      double squares = 0;
#pragma unroll
      for (int from = 0; from < kSumColumns; from += kBox) {
        // rows 0 to 7 and 8 to 15 of eight columns, and of the next eight
        uint32_t words[kBox / 16][4];
        float parts[kBox / 16];  // sums of eight squares
#pragma unroll
        for (int j = 0; j < kBox / 16; ++j) {
          parts[j] = 0;
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const float* here = sum + from / 2 + j * 8 + k * 2;
            words[j][k] = word_of(here[0], here[1], T());
            const float low = low_of(words[j][k], T()), high = high_of(words[j][k], T());
            parts[j] = fmaf(high, high, fmaf(low, low, parts[j]));
          }
        }
        squares += static_cast<double>((parts[0] + parts[1]) + (parts[2] + parts[3]));
        const int place = from / kBox % kKeptPlaces * kBoxBytes;
        if (leads) stores_wait<kKeptPlaces - 1>();
        named_sync(1 + group, kGroup);
#pragma unroll
        for (int j = 0; j < kBox / 16; ++j)
          store_matrices(row_of_lane + place + ((2 * j + column_of_lane) ^ lane % 8) * 16,
                         words[j]);
        copies_may_read();
        named_sync(1 + group, kGroup);
        if (leads) {
          store_box(&out, kept + place, static_cast<int>(at.column) + from, static_cast<int>(row),
                    static_cast<int>(sample));
          stores_commit();
        }
      }
#pragma unroll
      for (int other = 16; other > 0; other /= 2)
        squares += __shfl_down_sync(0xffffffffu, squares, other);
      const int64_t strip = row + warp * kKeptStrip;
      if (lane == 0 && strip < p.rows)
        p.partial[kept_partial(p, sample, strip) + at.column / kSumColumns] = squares;
    }
    if (leads) stores_wait<0>();
  }
  __syncwarp();
  cluster_sync();
}

constexpr int kFinishThreads = 1024;

// A block for each piece and sample adds the tiles' sums in order.
__global__ void __launch_bounds__(kFinishThreads)
    kept_finish_kernel(const __grid_constant__ KeptProduct p) {
  constexpr int kAtOnce = 8;  // on their way together
  const SamplePiece& piece = p.piece[blockIdx.x];
  const int64_t sample = blockIdx.y, begin = kept_partial(p, sample, piece.column),
                end = kept_partial(p, sample, piece.column + piece.count);
  double sum = 0;
  for (int64_t from = begin + threadIdx.x; from < end; from += kAtOnce * kFinishThreads) {
    double part[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t at = from + k * kFinishThreads;
      part[k] = at < end ? p.partial[at] : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) sum += part[k];
  }
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) p.squared[piece.row * p.squared_stride + sample] += sum;
}

// ----

template <typename Product>
uint32_t sum_tiles(const Product& p) {  // of a cluster
  return static_cast<uint32_t>(((p.rows + kCluster * kSumRows - 1) / (kCluster * kSumRows)) *
                               ((p.columns + kSumColumns - 1) / kSumColumns));
}

template <typename T>
void run_clipped_product(const ClippedProduct& p) {
  const CUtensorMap g = map_of(p.g, p.element, p.samples, p.tokens, p.rows, kBox),
                    a = map_of(p.a, p.element, p.samples, p.tokens, p.columns, kBox);
  const uint32_t tiles = sum_tiles(p);
  const int64_t clusters = processors() / kCluster;
  constexpr int kBytes = kSumStages * kSumBytes + 1024;
  allow_shared(clipped_product_kernel<T>, kBytes);
  clipped_product_kernel<T>
      <<<static_cast<unsigned>((tiles < clusters ? tiles : clusters) * kCluster), kThreads, kBytes,
         static_cast<cudaStream_t>(p.stream)>>>(g, a, p, tiles);
  check_launch("clipped_product");
}

template <typename T>
void run_kept_product(const KeptProduct& p) {
  const CUtensorMap g = map_of(p.g, p.element, p.samples, p.tokens, p.rows, kBox),
                    a = map_of(p.a, p.element, p.samples, p.tokens, p.columns, kBox);
  const uint32_t tiles = sum_tiles(p);
  const CUtensorMap out =
      map_of({p.out, p.out_stride, p.columns}, p.element, p.samples, p.rows, p.columns, kBox);
  const int64_t clusters = processors() / kCluster, items = int64_t{tiles} * p.samples;
  constexpr int kBytes = kSumStages * kSumBytes + kGroups * kKeptPlaces * kBoxBytes + 1024;
  allow_shared(kept_product_kernel<T>, kBytes);
  const auto stream = static_cast<cudaStream_t>(p.stream);
  kept_product_kernel<T><<<static_cast<unsigned>((items < clusters ? items : clusters) * kCluster),
                           kThreads, kBytes, stream>>>(g, a, out, p, tiles);
  check_launch("kept_product");
  kept_finish_kernel<<<dim3(static_cast<unsigned>(p.pieces), static_cast<unsigned>(p.samples)),
                       kFinishThreads, 0, stream>>>(p);
  check_launch("kept_product");
}

}  // namespace

bool has_sample_products() {
  static const bool has = [] {
    int device = 0, major = 0, minor = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0 && encoder() != nullptr;
  }();
  return has;
}

void clipped_product(const ClippedProduct& product) {
  if (product.element == Element::bf16) {
    run_clipped_product<__nv_bfloat16>(product);
  } else {
    run_clipped_product<__half>(product);
  }
}

void kept_product(const KeptProduct& product) {
  if (product.element == Element::bf16) {
    run_kept_product<__nv_bfloat16>(product);
  } else {
    run_kept_product<__half>(product);
  }
}

}  // namespace veil::launch
