#include "kernels/norm.cuh"

namespace veil::launch {
namespace {

template <typename T>
struct RmsNorm {
  static void run(const Norm& norm) { run_norm<T, /*kCentred=*/false>(norm); }
};
template <typename T>
struct RmsNormBackward {
  static void run(const NormBackward& norm) { run_norm_backward<T, /*kCentred=*/false>(norm); }
};
template <typename T>
struct LayerNorm {
  static void run(const Norm& norm) { run_norm<T, /*kCentred=*/true>(norm); }
};
template <typename T>
struct LayerNormBackward {
  static void run(const NormBackward& norm) { run_norm_backward<T, /*kCentred=*/true>(norm); }
};

}  // namespace

void rms_norm(const Norm& norm) {
  for_element<RmsNorm>(norm.element, norm);
}
void rms_norm_backward(const NormBackward& norm) {
  for_element<RmsNormBackward>(norm.element, norm);
}
void layer_norm(const Norm& norm) {
  for_element<LayerNorm>(norm.element, norm);
}
void layer_norm_backward(const NormBackward& norm) {
  for_element<LayerNormBackward>(norm.element, norm);
}

}  // namespace veil::launch
