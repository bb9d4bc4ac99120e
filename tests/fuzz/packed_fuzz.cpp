// Data that is packed by gzip or, if it begins as zstd does, by zstd.
#include "data/byte_source.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  const std::string_view bytes = fuzz::text_of(data, size);
  const bool zstd = bytes.starts_with("\x28\xB5\x2F\xFD");
  const std::string path = fuzz::input_file(zstd ? "input.txt.zst" : "input.txt.gz", bytes);
  fuzz::allow_user_error([&] {
    data::LineReader lines(data::open_bytes(path));
    std::string line;
    while (lines.next(line)) {
    }
    fuzz::require(lines.file_bytes_read() <= static_cast<int64_t>(size), "no byte is read twice");
  });
  return 0;
}
