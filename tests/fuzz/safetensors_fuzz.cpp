// A file of weights, as fuzz::safetensors_bytes makes it.
#include "fuzz/fuzz.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  const std::string path =
      fuzz::input_file("model.safetensors", fuzz::safetensors_bytes(fuzz::text_of(data, size)));
  fuzz::allow_user_error([&] {
    const SafetensorsFile weights(path);
    for (const StoredTensor& tensor : weights.tensors()) {
      // Reads every byte, so that one beyond the file is noticed.
      const std::span<const std::byte> bytes = weights.bytes(tensor);
      std::string copy(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      fuzz::require(weights.find(tensor.name) == &tensor, "names are unique");
      shape_text(tensor.dims);
    }
  });
  return 0;
}
