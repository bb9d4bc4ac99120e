#include "base/error.h"
#include "kernels/launch.h"

namespace veil::launch {

namespace {
void not_built() {
  check_failed(__FILE__, __LINE__, "not reached",
               fmt::format("a CUDA kernel in a build without CUDA"));
}
}  // namespace

void random_fill(const RandomFill&) {
  not_built();
}
void update(const Update&) {
  not_built();
}
void add_noise(const Noise&) {
  not_built();
}
void squared_error(const SquaredError&) {
  not_built();
}
void column_sum(const ColumnSum&) {
  not_built();
}
void clip_scale(StepKnobs*, void*) {
  not_built();
}
void add_losses(const double*, int64_t, double*, void*) {
  not_built();
}
void rms_norm(const Norm&) {
  not_built();
}
void layer_norm(const Norm&) {
  not_built();
}
void rms_norm_backward(const NormBackward&) {
  not_built();
}
void layer_norm_backward(const NormBackward&) {
  not_built();
}
void modulated_norm(const Norm&) {
  not_built();
}
void modulated_norm_backward(const NormBackward&) {
  not_built();
}
void gated_add(const GatedAdd&) {
  not_built();
}
void gated_add_backward(const GatedAddBackward&) {
  not_built();
}
void timestep_features(const int64_t*, int64_t, void*, Element, int64_t*, int64_t, int64_t, void*) {
  not_built();
}
void gelu_backward_summed(const Gelu&) {
  not_built();
}
void pack_heads(const RopeBackward&) {
  not_built();
}
void token_sum(const TokenSum&) {
  not_built();
}
void rope(const Rope&) {
  not_built();
}
void rope_backward(const RopeBackward&) {
  not_built();
}
void swiglu(const Swiglu&) {
  not_built();
}
void swiglu_backward(const Swiglu&) {
  not_built();
}
void gelu(const Gelu&) {
  not_built();
}
void gelu_backward(const Gelu&) {
  not_built();
}
void cross_entropy_scan(const CrossEntropy&) {
  not_built();
}
void cross_entropy_grad(const CrossEntropy&) {
  not_built();
}
void embedding_grad(const EmbeddingGrad&) {
  not_built();
}
void add_squared_norm(const SquaredNorm&) {
  not_built();
}
void cross_entropy_losses(const CrossEntropy&, double*) {
  not_built();
}
void token_weights(const int64_t*, void*, Element, int64_t, int64_t, void*) {
  not_built();
}
void add_segment_norms(const SampleNorm&) {
  not_built();
}
void copy_normed(const NormedCopy&) {
  not_built();
}
void add_sample_products(const SampleProduct&) {
  not_built();
}
void add_outer_norms(const OuterNorm&) {
  not_built();
}
void add_embedding_norms(const EmbeddingNorm&) {
  not_built();
}
void gather_columns(const GatherColumns&) {
  not_built();
}
void combine_samples(const CombineSamples&) {
  not_built();
}
void scale_samples(const ScaleSamples&) {
  not_built();
}
bool has_sample_products() {
  return false;
}
void clipped_product(const ClippedProduct&) {
  not_built();
}
void kept_product(const KeptProduct&) {
  not_built();
}
void gram_norms(const GramNorms&) {
  not_built();
}
void clip_coefficients(const Coefficients&) {
  not_built();
}
void noisy_update_philox(const NoisyUpdates&) {
  not_built();
}
void noisy_update_secure(const NoisyUpdates&) {
  not_built();
}
void noisy_update_hardened(const NoisyUpdates&) {
  not_built();
}

}  // namespace veil::launch
