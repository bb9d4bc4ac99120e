#include "base/error.h"
#include "data/byte_source.h"

namespace veil::data {

bool built_with_zstd() {
  return false;
}

std::unique_ptr<ByteSource> open_zstd(const std::string& path) {
  throw MissingBackend(
      fmt::format("'{}' is packed, and this build has no zstd: unpack it, or install libzstd-dev "
                  "and build again",
                  path));
}

}  // namespace veil::data
