#include "base/error.h"
#include "data/byte_source.h"

namespace veil::data {

bool built_with_zlib() {
  return false;
}

std::unique_ptr<ByteSource> open_gzip(const std::string& path) {
  throw MissingBackend(
      fmt::format("'{}' is packed, and this build has no zlib: unpack it, or install zlib1g-dev "
                  "and build again",
                  path));
}

}  // namespace veil::data
