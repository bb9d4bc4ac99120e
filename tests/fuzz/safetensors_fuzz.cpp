// A file of weights. Input that begins with "{" is a header in one line and the tensors' bytes; its
// length is put before it. All other input is the file as it is.
#include <cstring>

#include "fuzz/fuzz.h"
#include "models/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view rest = fuzz::text_of(data, size);
  std::string file(rest);
  if (rest.starts_with("{")) {
    const std::string_view header = fuzz::take_line(rest);
    const uint64_t length = header.size();
    file.assign(reinterpret_cast<const char*>(&length), sizeof length);
    file.append(header).append(rest);
  }
  const std::string path = fuzz::input_file("model.safetensors", file);
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
