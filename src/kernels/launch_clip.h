// The CUDA launches behind clipping and the noisy update; see launch.h.
#pragma once

#include <cstdint>

#include "kernels/clip_coefficient.h"
#include "kernels/element.h"
#include "kernels/noise_values.h"
#include "kernels/sample_segment.h"
#include "kernels/update_rule.h"

namespace veil::launch {

// A sample's elements are cut into chunks whose sums are added in order; the cut does not depend on the device.
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

struct SampleProduct {
  const void *x, *y;
  Element element;
  int64_t samples, numel;
  double factor;
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
  double* facts;           // ClipFact
  int64_t params, samples;
  int first_layer, end_layer;
  bool automatic, last;
  void* stream;
};
void clip_coefficients(const Coefficients& coefficients);

struct NoisyUpdate {
  void* param;
  Element param_element;
  void *m, *v;            // optimizer state, or null
  Element state_element;  // as in Update
  const void* grad;       // [numel], or [samples, stride] where there are samples
  Element grad_element;
  int64_t samples, stride;  // 0: already summed
  const double* coefficients;
  int64_t numel;
  const double* knobs;  // UpdateKnobs, on the device
  UpdateRule rule;
  int64_t first_index;
  const double* noise_knobs;  // NoiseKnobs, on the device
  ChaChaKey key;
  uint32_t parameter;
  int64_t first_element;
  void* stream;
};
// One for each generator: a file of their own, for they take the compiler long.
void noisy_update_philox(const NoisyUpdate& update);
void noisy_update_secure(const NoisyUpdate& update);

}  // namespace veil::launch
