#include "kernels/norm.cuh"

namespace veil::launch {
namespace {

template <typename T>
struct Forward {
  static void run(const Norm& norm) { run_norm<T, /*kCentred=*/false>(norm); }
};
template <typename T>
struct Backward {
  static void run(const NormBackward& norm) { run_norm_backward<T, /*kCentred=*/false>(norm); }
};

}  // namespace

void rms_norm(const Norm& norm) {
  for_element<Forward>(norm.element, norm);
}
void rms_norm_backward(const NormBackward& norm) {
  for_element<Backward>(norm.element, norm);
}

}  // namespace veil::launch
