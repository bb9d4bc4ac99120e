// The CUDA launches behind the kernels' functions: plain pointers, so that nvcc reads no LibTorch
// header. A build without CUDA links launch_no_cuda.cpp.
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#endif

#include <cstdint>
#include <span>

#include "kernels/clip_coefficient.h"
#include "kernels/noise_values.h"
#include "kernels/rope_frequencies.h"
#include "kernels/sample_segment.h"
#include "kernels/update_rule.h"

namespace veil {

// Element types as kernels see them, without LibTorch.
enum class Element { fp32, fp64, bf16, fp16 };

}  // namespace veil

namespace veil::launch {

struct RandomFill {
  void* out;
  Element element;
  int64_t numel;
  bool normal;
  float scale;
  uint64_t seed;
  uint32_t domain;
  int64_t first_index;
  void* stream;
};
void random_fill(const RandomFill& fill);

struct Update {
  void* param;
  Element param_element;
  const void* grad;
  Element grad_element;
  void* state;            // states one after another, each `numel` long
  Element state_element;  // fp64 if param is, otherwise fp32 or bf16
  int64_t numel;
  const UpdateKnobs* knobs;  // on the device
  UpdateRule rule;
  int64_t first_index;
  void* stream;
};
void update(const Update& update);

struct Noise {
  void* out;
  Element element;  // fp32 or fp64
  int64_t numel;
  const NoiseKnobs* knobs;  // on the device; null: `values`
  NoiseKnobs values;
  NoiseKeys keys;
  uint32_t parameter;
  int64_t first_element;
  void* stream;
};
void add_noise(const Noise& noise);

struct SquaredError {
  const void* output;
  const void* target;
  void* grad;
  Element element;
  double* losses;
  int64_t batch, width;
  void* stream;
};
void squared_error(const SquaredError& error);
void add_losses(const double* losses, int64_t batch, double* total, void* stream);

void clip_scale(StepKnobs* knobs, void* stream);

struct ColumnSum {
  const void* x;
  Element x_element;
  void* out;
  Element out_element;
  void* partial;  // column_sum_chunks(rows) * columns; fp64 if x or out is, otherwise fp32
  int64_t rows, columns;
  bool accumulate;
  void* stream;
};
void column_sum(const ColumnSum& sum);
// Into how many pieces the rows are cut: enough to fill a GPU, few enough to add up quickly.
inline int64_t column_sum_chunks(int64_t rows) {
  return rows <= 64 ? 1 : rows <= int64_t{64} * 64 ? (rows + 63) / 64 : 64;
}

// rms_norm and layer_norm; the first has no bias and no mean. Pointers that an operation does
// without are null. Real: fp64 if x is, otherwise fp32.
struct Norm {
  const void *x, *add, *weight, *bias;
  void *sum, *out;
  void *mean, *rstd;  // Real
  Element element;
  int64_t rows, width;
  double epsilon;
  void* stream;
  // modulated_norm: weight (the scale), bias (the shift) and gate are each sample's own, their rows
  // `stride` elements apart.
  const void* gate = nullptr;
  int64_t sample_rows = 0, stride = 0;
  double offset = 0;  // rms_norm: added to the weight
};
void rms_norm(const Norm& norm);
void layer_norm(const Norm& norm);
void modulated_norm(const Norm& norm);

struct NormBackward {
  const void *dy, *x, *weight;
  const void *mean, *rstd;  // Real
  const void* residual;
  void* dx;
  void *weight_grad, *bias_grad;  // Real
  // Real: for each of the two gradients batch * sample_strips * width, if there is more than one
  // strip
  void* partial;
  Element element;
  int64_t batch, rows, width;  // rows of one sample
  void* stream;
  // modulated_norm_backward: from one sample's weight, and its gradients, to the next's
  int64_t stride = 0, grad_stride = 0;
  double offset = 0;  // rms_norm_backward: added to the weight
};
void rms_norm_backward(const NormBackward& norm);
void layer_norm_backward(const NormBackward& norm);
void modulated_norm_backward(const NormBackward& norm);

struct GatedAdd {
  const void *x, *add, *gate;  // gate: rows `gate_stride` elements apart
  void* out;
  Element element;
  int64_t batch, rows, width, gate_stride;
  void* stream;
};
void gated_add(const GatedAdd& gated);

struct GatedAddBackward {
  const void *dy, *add, *gate;
  void* d_add;
  void *gate_grad, *add_sum;  // Real; gate_grad's rows grad_stride apart, add_sum's width
  void* partial;  // Real: twice batch * sample_strips * width, if there is more than one strip
  Element element;
  int64_t batch, rows, width, gate_stride, grad_stride;
  void* stream;
};
void gated_add_backward(const GatedAddBackward& gated);

void timestep_features(const int64_t* condition, int64_t labels, void* features, Element element,
                       int64_t* ids, int64_t batch, int64_t width, void* stream);

// Into how many strips of consecutive rows a sample is cut where sums over its rows are made: about
// 512 blocks in all, at least four rows each. A strip has strip_rows(...) rows, the last what is
// left. Neither depends on the device, so sums are the same on all.
inline int64_t strip_rows(int64_t batch, int64_t rows) {
  const int64_t wanted = batch >= 512 || batch <= 0 ? 1 : (512 + batch - 1) / batch;
  const int64_t each = (rows + wanted - 1) / wanted;
  return each < 4 ? 4 : each;
}
inline int64_t sample_strips(int64_t batch, int64_t rows) {
  const int64_t each = strip_rows(batch, rows);
  return rows <= each ? 1 : (rows + each - 1) / each;
}

struct TokenSum {
  const void* x;
  Element element;
  int64_t batch_stride, token_stride;  // in elements
  void* out;                           // Real
  void* partial;  // Real: batch * sample_strips * width, if there is more than one strip
  int64_t batch, tokens, width;
  void* stream;
};
void token_sum(const TokenSum& sum);

struct Rope {
  void* qkv;
  Element element;
  int64_t batch, tokens, heads, head_dim, turned;
  RopeFrequencies frequencies;
  void* stream;
};
void rope(const Rope& rope);

struct RopeSource {
  const void* data;
  int64_t batch_stride, head_stride, token_stride;  // in elements
};
struct RopeBackward {
  RopeSource dq, dk, dv;
  void* dqkv;
  Element element;
  int64_t batch, tokens, heads, kv_heads, head_dim;
  RopeFrequencies frequencies;
  void* stream;
  void *sums = nullptr, *partial = nullptr;  // pack_heads: as TokenSum's, of dqkv
};
void rope_backward(const RopeBackward& rope);
void pack_heads(const RopeBackward& rope);  // turns nothing

// swiglu; with `gelu` the gate goes through GELU by tanh instead of SiLU.
struct Swiglu {
  const void *gate_up, *grad;  // grad, d_gate_up: backward only
  void *d_gate_up, *out;
  Element element;
  int64_t rows, width;
  void* stream;
  bool gelu = false;
};
void swiglu(const Swiglu& swiglu);
void swiglu_backward(const Swiglu& swiglu);

struct Gelu {
  const void *x, *grad;  // grad, dx: backward only
  void *dx, *out;
  Element element;
  int64_t numel;
  void* stream;
  bool exact = false;  // by erf instead of tanh
  // gelu_backward_summed: as TokenSum's, of dx
  int64_t batch = 0, tokens = 0, width = 0;
  void *sums = nullptr, *partial = nullptr;
};
void gelu(const Gelu& gelu);
void gelu_backward(const Gelu& gelu);
void gelu_backward_summed(const Gelu& gelu);

struct CrossEntropy {
  void* logits;  // [rows, width]
  Element element;
  int64_t first;
  const int64_t* targets;
  void* state;          // Real [rows, 3]
  const void* weights;  // Real [batch]; gradient and losses only
  int64_t batch, rows, width;
  void* stream;
};
void cross_entropy_scan(const CrossEntropy& entropy);
void cross_entropy_grad(const CrossEntropy& entropy);
void cross_entropy_losses(const CrossEntropy& entropy, double* losses);  // element: state's
void token_weights(const int64_t* targets, void* weights, Element element, int64_t batch,
                   int64_t tokens, void* stream);

struct EmbeddingGrad {
  // ids of a table sorted, and where each of them stood before; equal ids in order of position
  const int64_t *ids, *positions;
  const void* grad;
  Element element;
  void* out;
  Element out_element;
  int64_t count, vocabulary, width;  // of a table
  bool accumulate;
  const double* coefficients;  // by sample, or null
  int64_t tokens;              // positions of a sample
  int64_t tables, out_stride;  // each with its own ids, positions and grad, one after another
  double* squared;             // by table: follows what is added; or null
  double* partial;             // tables * embedding_norm_partials(count, width), if there are norms
  void* stream;
};
void embedding_grad(const EmbeddingGrad& embedding);
// Of a table: a difference for each place and strip of columns, whether all of it is read, and the
// sums of its parts then.
inline constexpr int64_t kTableParts = 128;
inline int64_t embedding_norm_partials(int64_t count, int64_t width) {
  constexpr int64_t kLeastStrip = 128;
  return count * ((width + kLeastStrip - 1) / kLeastStrip) + 1 + kTableParts;
}

struct SquaredNorm {
  const void* x;
  Element element;
  int64_t numel;
  double* partial;  // squared_norm_blocks(numel)
  double* total;
  void* stream;
};
void add_squared_norm(const SquaredNorm& norm);
inline int64_t squared_norm_blocks(int64_t numel) {
  const int64_t blocks = (numel + 8191) / 8192;
  return blocks < 1 ? 1 : blocks > 1056 ? 1056 : blocks;
}

// Clipping and the noisy update.

// A sample's elements are cut into chunks whose sums are added in order; the cut does not depend on
// the device.
inline constexpr int64_t kSampleNormChunk = 1 << 15;
VEIL_HOST_DEVICE int64_t sample_norm_chunks(int64_t numel) {
  return (numel + kSampleNormChunk - 1) / kSampleNormChunk;
}

inline constexpr int kMostSegments = 32;
struct SampleNorm {
  const void* x;
  Element element;
  int64_t samples, stride;
  SampleSegment segments[kMostSegments];
  int count;
  double* partial;  // samples * all segments' chunks
  double* squared;  // [rows, columns], from the first sample's column on
  int64_t columns;
  void* stream;
};
void add_segment_norms(const SampleNorm& norm);

struct NormedCopy {
  const void* from;  // Real
  void* to;
  Element element;  // of `to`
  int64_t samples, from_stride, to_stride;
  SampleSegment segments[kMostSegments];
  int count;
  double* squared;  // [rows, columns]
  int64_t columns;
  void* stream;
};
void copy_normed(const NormedCopy& copy);

struct SampleProduct {
  const void *x, *y;
  Element element;
  int64_t samples, numel;
  double factor;
  int64_t side;     // of square matrices, whose diagonals are lengths; 0 for anything else
  double rounding;  // for the square of the lengths' sum
  double* partial;  // samples * sample_norm_chunks(numel)
  double* totals;
  void* stream;
};
void add_sample_products(const SampleProduct& product);

struct OuterNorm {
  const void *a, *g;
  Element element;
  int64_t samples, inputs, outputs, a_stride, g_stride;
  double* totals;
  void* stream;
};
void add_outer_norms(const OuterNorm& outer);

struct EmbeddingNorm {
  const int64_t *keys, *positions;  // sample * vocabulary + id, sorted, and where each stood before
  const void* g;
  Element element;
  int64_t samples, tokens, vocabulary, width;
  double* runs;  // samples * tokens
  double* totals;
  void* stream;
};
void add_embedding_norms(const EmbeddingNorm& embedding);

struct GatherColumns {
  const void* g;
  Element element;
  int64_t sample_stride, token_stride;
  const int64_t* ids;
  int64_t ids_stride;
  void* out;
  int64_t samples, tokens, columns, chosen, row;
  void* stream;
};
void gather_columns(const GatherColumns& columns);

struct CombineSamples {
  const void* x;
  Element element;
  int64_t samples, stride, numel;
  const double* coefficients;
  void* out;
  Element out_element;  // fp32 or fp64
  bool add;
  void* stream;
};
void combine_samples(const CombineSamples& combine);

// Products over tokens on the tensor cores of compute capability 9.0, for bf16 and fp16. Addresses
// and strides are multiples of eight elements.
bool has_sample_products();

struct SampleMatrix {  // [samples, tokens, columns], columns contiguous
  const void* data;
  int64_t sample_stride, token_stride;  // in elements
};

// out[r, c] (+)= the sum over samples i of coefficients[i] times the sum over t of g[i, t, r] a[i,
// t, c]. A sample whose coefficient is 0 is not read.
struct ClippedProduct {
  SampleMatrix g, a;
  Element element;
  int64_t samples, tokens, rows, columns;
  const double* coefficients;
  float* out;  // [rows, columns]
  bool add;
  void* stream;
};
void clipped_product(const ClippedProduct& product);

struct SamplePiece {  // columns of a report's g that are one parameter's
  int64_t column, count;
  int64_t row;  // of squared norms
};

// out[i, r, c] = the sum over t of g[i, t, r] a[i, t, c], rounded to the type of both, and
// squared[piece.row, i] += the sum of squares of what a piece's rows were rounded to.
inline constexpr int kMostKeptPieces = 8;
struct KeptProduct {
  SampleMatrix g, a;
  Element element;
  int64_t samples, tokens, rows, columns;
  void* out;
  int64_t out_stride;                  // from sample to sample
  SamplePiece piece[kMostKeptPieces];  // whole strips of kKeptStrip columns of g
  int pieces;
  double* partial;  // kept_product_partials(samples, rows, columns)
  double* squared;  // [.., squared_stride]
  int64_t squared_stride;
  void* stream;
};
void kept_product(const KeptProduct& product);
// A sum of squares for each strip of rows in a tile.
inline constexpr int64_t kKeptStrip = 16, kKeptTile = 256;
VEIL_HOST_DEVICE int64_t kept_partials_of_rows(int64_t rows, int64_t columns) {
  return (rows + kKeptStrip - 1) / kKeptStrip * ((columns + kKeptTile - 1) / kKeptTile);
}
inline int64_t kept_product_partials(int64_t samples, int64_t rows, int64_t columns) {
  return samples * kept_partials_of_rows(rows, columns);
}
VEIL_HOST_DEVICE int64_t kept_partial(const KeptProduct& p, int64_t sample, int64_t row) {
  return sample * kept_partials_of_rows(p.rows, p.columns) + kept_partials_of_rows(row, p.columns);
}

// For each piece of a report's g, squared[row, first_sample + i] += the sum over pairs of tokens of
// (a a^T)(g g^T), and rounding * (the sum over t of |a_t| |g_t|)^2.
inline constexpr int kMostGramPieces = 4, kMostGramReports = 4;
inline constexpr int kGramColumns = 128;  // that a tensor core adds up; fp32 additions the rest
struct GramReport {
  SampleMatrix a, g;
  int64_t columns;  // of a
  SamplePiece piece[kMostGramPieces];
  int pieces;
  int64_t first_sample;
};
struct GramNorms {
  GramReport report[kMostGramReports];  // those that take longest first
  int reports;
  Element element;
  int64_t samples, tokens;
  double rounding;
  double* partial;  // gram_norm_partials(samples, tokens)
  double* squared;  // [rows, squared_stride]
  int64_t squared_stride;
  void* stream;
};
void gram_norms(const GramNorms& norms);
inline int64_t gram_norm_tiles(int64_t tokens) {
  const int64_t side = (tokens + 127) / 128;
  return side * (side + 1) / 2;
}
inline int64_t gram_norm_partials(int64_t samples, int64_t tokens) {
  return kMostGramReports * kMostGramPieces * samples * gram_norm_tiles(tokens) * 2;
}
VEIL_HOST_DEVICE int64_t gram_partial(const GramNorms& n, int64_t report, int64_t piece,
                                      int64_t sample, int64_t tile, int64_t tiles) {
  return (((report * kMostGramPieces + piece) * n.samples + sample) * tiles + tile) * 2;
}

struct ScaleSamples {
  const void* x;
  Element element;
  int64_t samples, stride, numel;
  const double* coefficients;
  void* out;
  bool select;
  void* stream;
};
void scale_samples(const ScaleSamples& scale);

struct Coefficients {
  const double* squared;  // [params, samples]
  const int32_t* layers;  // [params]
  const double* clip_norms;
  const uint8_t* counted;  // [samples], or null
  double* coefficients;    // [layers, samples]
  ClipTally* tally;
  int64_t params, samples;
  int first_layer, end_layer;
  ClipFunction function;
  bool last;
  void* stream;
};
void clip_coefficients(const Coefficients& coefficients);

struct NoisyUpdate {
  void* param;
  Element param_element;
  void *m, *v;            // optimizer state, or null
  Element state_element;  // as in Update
  const void* grad;       // [numel], or [samples, stride] if there are samples
  Element grad_element;
  int64_t samples, stride;  // 0: already summed
  const double* coefficients;
  int64_t numel;
  const UpdateKnobs* knobs;  // on the device
  UpdateRule rule;
  int64_t first_index;
  const NoiseKnobs* noise_knobs;  // on the device
  NoiseKeys keys;
  uint32_t parameter;
  int64_t first_element;
  void* stream;
};
// Several that differ in their ranges alone: addresses, numel, first_index, parameter and
// first_element. One function per generator, each in a file of its own because they take long to
// compile.
using NoisyUpdates = std::span<const NoisyUpdate>;
void noisy_update_philox(const NoisyUpdates& updates);
void noisy_update_secure(const NoisyUpdates& updates);
void noisy_update_hardened(const NoisyUpdates& updates);

#ifdef __CUDACC__
// Turns a failed kernel launch into an exception.
inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("[") + kernel + "] " + cudaGetErrorString(error));
}
#endif

}  // namespace veil::launch
