// What the fuzz targets share. A target hands any bytes to one parser of the library. A UserError is
// the right answer to bad ones; whatever else leaves a target is a finding.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace veil::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The first line, which is taken off `text`.
std::string_view take_line(std::string_view& text);

// The folder of this process, in the system's folder for temporary files. It is removed at exit.
const std::string& work_folder();
// Writes the bytes to a file of that folder; answers its path.
std::string input_file(const std::string& name, std::string_view bytes);

// A header in one line and the tensors' bytes as a safetensors file: the header's length is put
// before it. What does not begin with "{" is the file as it is.
std::string safetensors_bytes(std::string_view input);

// What a parser promises about what it has accepted.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

template <typename Parse>
void allow_user_error(Parse&& parse) {
  try {
    parse();
  } catch (const UserError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos,
            "a refusal is one line");
  }
}

}  // namespace veil::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
