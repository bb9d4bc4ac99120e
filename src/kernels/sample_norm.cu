#include "kernels/launch.h"
#include "kernels/vectorized_access.cuh"

namespace veil::launch {
namespace {

constexpr int kThreads = 256;

// One pack's sum of products runs in Real, the sum of those in fp64: a conversion for each pack
// instead of each element.
template <typename T, int kWide>
__device__ __forceinline__ double product_sum(const T* x, const T* y, int64_t begin, int64_t end) {
  using Real = RealOf<T>;
  double sum = 0;
  const int64_t packs = (end - begin) / kWide;
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < packs; p += kThreads) {
    const auto one = load_pack<kWide>(x + begin + p * kWide);
    const auto other = load_pack<kWide>(y + begin + p * kWide);
    Real part = 0;
#pragma unroll
    for (int k = 0; k < kWide; ++k) part += one.at(k) * other.at(k);
    sum += static_cast<double>(part);
  }
  for (int64_t j = begin + packs * kWide + threadIdx.x; j < end; j += kThreads)
    sum += static_cast<double>(real(x[j]) * real(y[j]));
  return sum;
}

// A block for each chunk of a segment and each sample. `packed`: every sample begins at an address
// that packs can be read from.
template <typename T>
__global__ void __launch_bounds__(kThreads) segment_kernel(SampleNorm n, bool packed) {
  int64_t chunk = blockIdx.x;
  int s = 0;
  while (chunk >= sample_norm_chunks(n.segments[s].numel))
    chunk -= sample_norm_chunks(n.segments[s++].numel);
  const SampleSegment segment = n.segments[s];
  const int64_t begin = chunk * kSampleNormChunk, end = begin + kSampleNormChunk < segment.numel
                                                            ? begin + kSampleNormChunk
                                                            : segment.numel;
  const T* x = static_cast<const T*>(n.x) + blockIdx.y * n.stride + segment.offset;
  constexpr int kWide = kWideOf<T>;
  const bool wide = packed && segment.offset % kWide == 0;
  const double sum = whole_block_sum(wide ? product_sum<T, kWide>(x, x, begin, end)
                                          : product_sum<T, 1>(x, x, begin, end));
  if (threadIdx.x == 0) n.partial[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

// A block for each segment and each sample adds the chunks' sums in order.
__global__ void __launch_bounds__(kThreads) segment_finish_kernel(SampleNorm n, int64_t chunks) {
  int64_t first = 0;
  for (int s = 0; s < static_cast<int>(blockIdx.x); ++s)
    first += sample_norm_chunks(n.segments[s].numel);
  const SampleSegment segment = n.segments[blockIdx.x];
  const int64_t count = sample_norm_chunks(segment.numel);
  double sum = 0;
  for (int64_t c = threadIdx.x; c < count; c += kThreads)
    sum += n.partial[blockIdx.y * chunks + first + c];
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) n.squared[segment.row * n.columns + blockIdx.y] += sum;
}

template <typename T>
struct RunSegments {
  static void run(const SampleNorm& n) {
    int64_t chunks = 0;
    for (int s = 0; s < n.count; ++s) chunks += sample_norm_chunks(n.segments[s].numel);
    if (chunks == 0 || n.samples == 0) return;
    const auto stream = static_cast<cudaStream_t>(n.stream);
    const bool packed = aligned(n.x) && (n.samples == 1 || n.stride % kWideOf<T> == 0);
    const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(n.samples));
    segment_kernel<T><<<grid, kThreads, 0, stream>>>(n, packed);
    check_launch("add_segment_norms");
    segment_finish_kernel<<<dim3(static_cast<unsigned>(n.count), static_cast<unsigned>(n.samples)),
                            kThreads, 0, stream>>>(n, chunks);
    check_launch("add_segment_norms");
  }
};

constexpr int kCopyThreads = 1024;

// A block for each segment and each sample.
template <typename T>
__global__ void __launch_bounds__(kCopyThreads) copy_kernel(const __grid_constant__ NormedCopy c) {
  const SampleSegment segment = c.segments[blockIdx.x];
  const RealOf<T>* __restrict__ from =
      static_cast<const RealOf<T>*>(c.from) + blockIdx.y * c.from_stride + segment.offset;
  T* __restrict__ to = static_cast<T*>(c.to) + blockIdx.y * c.to_stride + segment.offset;
  double sum = 0;
#pragma unroll 8
  for (int64_t j = threadIdx.x; j < segment.numel; j += kCopyThreads) {
    const T value = rounded<T>(from[j]);
    to[j] = value;
    sum += static_cast<double>(real(value)) * static_cast<double>(real(value));
  }
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) c.squared[segment.row * c.columns + blockIdx.y] += sum;
}

template <typename T>
struct RunCopy {
  static void run(const NormedCopy& c) {
    if (c.count == 0 || c.samples == 0) return;
    copy_kernel<T><<<dim3(static_cast<unsigned>(c.count), static_cast<unsigned>(c.samples)),
                     kCopyThreads, 0, static_cast<cudaStream_t>(c.stream)>>>(c);
    check_launch("copy_normed");
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) product_kernel(SampleProduct p, bool packed) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSampleNormChunk,
                end = begin + kSampleNormChunk < p.numel ? begin + kSampleNormChunk : p.numel;
  const T* x = static_cast<const T*>(p.x) + blockIdx.y * p.numel;
  const T* y = static_cast<const T*>(p.y) + blockIdx.y * p.numel;
  constexpr int kWide = kWideOf<T>;
  const double sum = whole_block_sum(packed ? product_sum<T, kWide>(x, y, begin, end)
                                            : product_sum<T, 1>(x, y, begin, end));
  if (threadIdx.x == 0) p.partial[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) product_finish_kernel(SampleProduct p, int64_t chunks) {
  __shared__ double lanes[2 * 32];
  double sums[2] = {0, 0};  // of products, and of lengths
  for (int64_t c = threadIdx.x; c < chunks; c += kThreads)
    sums[0] += p.partial[blockIdx.x * chunks + c];
  const T* x = static_cast<const T*>(p.x) + blockIdx.x * p.numel;
  const T* y = static_cast<const T*>(p.y) + blockIdx.x * p.numel;
  for (int64_t t = threadIdx.x; t < p.side; t += kThreads) {
    const int64_t at = t * (p.side + 1);
    sums[1] += sqrt(static_cast<double>(real(x[at])) * static_cast<double>(real(y[at])));
  }
  block_sum(sums, lanes);
  if (threadIdx.x == 0) p.totals[blockIdx.x] += p.factor * sums[0] + p.rounding * sums[1] * sums[1];
}

template <typename T>
struct RunProducts {
  static void run(const SampleProduct& p) {
    const int64_t chunks = sample_norm_chunks(p.numel);
    if (chunks == 0 || p.samples == 0) return;
    const auto stream = static_cast<cudaStream_t>(p.stream);
    const bool packed = aligned(p.x) && aligned(p.y) && p.numel % kWideOf<T> == 0;
    product_kernel<T><<<dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(p.samples)),
                        kThreads, 0, stream>>>(p, packed);
    check_launch("add_sample_products");
    product_finish_kernel<T><<<static_cast<unsigned>(p.samples), kThreads, 0, stream>>>(p, chunks);
    check_launch("add_sample_products");
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) outer_kernel(OuterNorm o) {
  __shared__ double lanes[2 * 32];
  const T* a = static_cast<const T*>(o.a) + blockIdx.x * o.a_stride;
  const T* g = static_cast<const T*>(o.g) + blockIdx.x * o.g_stride;
  double sums[2] = {product_sum<T, 1>(a, a, 0, o.inputs), product_sum<T, 1>(g, g, 0, o.outputs)};
  block_sum(sums, lanes);
  if (threadIdx.x == 0) o.totals[blockIdx.x] += sums[0] * sums[1];
}

template <typename T>
struct RunOuter {
  static void run(const OuterNorm& o) {
    if (o.samples == 0) return;
    outer_kernel<T>
        <<<static_cast<unsigned>(o.samples), kThreads, 0, static_cast<cudaStream_t>(o.stream)>>>(o);
    check_launch("add_outer_norms");
  }
};

// A block for each place in the sorted order; the first place of a run adds its rows and squares
// the sum, the others leave 0.
template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_kernel(EmbeddingNorm e) {
  using Real = RealOf<T>;
  const int64_t begin = blockIdx.x, key = e.keys[begin], count = e.samples * e.tokens;
  if (begin > 0 && e.keys[begin - 1] == key) {
    if (threadIdx.x == 0) e.runs[begin] = 0;
    return;
  }
  const T* g = static_cast<const T*>(e.g);
  double sum = 0;
  for (int64_t j = threadIdx.x; j < e.width; j += kThreads) {
    Real row = 0;
    for (int64_t p = begin; p < count && e.keys[p] == key; ++p)
      row += real(g[e.positions[p] * e.width + j]);
    sum += static_cast<double>(row) * static_cast<double>(row);
  }
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) e.runs[begin] = sum;
}

// Keys of sample i are those in [i vocabulary, (i + 1) vocabulary), so its runs stand at [i tokens,
// (i + 1) tokens).
__global__ void __launch_bounds__(kThreads) embedding_finish_kernel(EmbeddingNorm e) {
  double sum = 0;
  for (int64_t t = threadIdx.x; t < e.tokens; t += kThreads)
    sum += e.runs[blockIdx.x * e.tokens + t];
  sum = whole_block_sum(sum);
  if (threadIdx.x == 0) e.totals[blockIdx.x] += sum;
}

template <typename T>
struct RunEmbedding {
  static void run(const EmbeddingNorm& e) {
    if (e.samples * e.tokens == 0) return;
    const auto stream = static_cast<cudaStream_t>(e.stream);
    embedding_kernel<T><<<static_cast<unsigned>(e.samples * e.tokens), kThreads, 0, stream>>>(e);
    check_launch("add_embedding_norms");
    embedding_finish_kernel<<<static_cast<unsigned>(e.samples), kThreads, 0, stream>>>(e);
    check_launch("add_embedding_norms");
  }
};

template <typename T>
__global__ void __launch_bounds__(kThreads) gather_kernel(GatherColumns c) {
  const int64_t total = c.samples * c.tokens * c.chosen,
                stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; k < total;
       k += stride) {
    const int64_t s = k % c.chosen, t = k / c.chosen % c.tokens, i = k / c.chosen / c.tokens;
    const int64_t column = c.ids[i * c.ids_stride + s] - c.row;
    const T* g = static_cast<const T*>(c.g) + i * c.sample_stride + t * c.token_stride;
    static_cast<T*>(c.out)[k] = column >= 0 && column < c.columns ? g[column] : T(0);
  }
}

template <typename T>
struct RunGather {
  static void run(const GatherColumns& c) {
    const int64_t blocks = (c.samples * c.tokens * c.chosen + kThreads - 1) / kThreads;
    if (blocks == 0) return;
    gather_kernel<T><<<static_cast<unsigned>(blocks < 132 * 64 ? blocks : 132 * 64), kThreads, 0,
                       static_cast<cudaStream_t>(c.stream)>>>(c);
    check_launch("gather_columns");
  }
};

}  // namespace

void add_segment_norms(const SampleNorm& norm) {
  for_element<RunSegments>(norm.element, norm);
}
void copy_normed(const NormedCopy& copy) {
  for_element<RunCopy>(copy.element, copy);
}
void add_sample_products(const SampleProduct& product) {
  for_element<RunProducts>(product.element, product);
}
void add_outer_norms(const OuterNorm& outer) {
  for_element<RunOuter>(outer.element, outer);
}
void add_embedding_norms(const EmbeddingNorm& embedding) {
  for_element<RunEmbedding>(embedding.element, embedding);
}
void gather_columns(const GatherColumns& columns) {
  for_element<RunGather>(columns.element, columns);
}

}  // namespace veil::launch
