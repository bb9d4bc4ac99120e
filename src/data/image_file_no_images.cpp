#include "base/error.h"
#include "data/image_file.h"

namespace veil::data {
namespace {

[[noreturn]] void not_built() {
  throw MissingBackend(
      "this build reads and writes no images: libpng and libjpeg were not found (apt-get install "
      "libpng-dev "
      "libjpeg-dev)");
}

}  // namespace

bool built_with_images() {
  return false;
}
std::string image_library_versions() {
  return "";
}
Picture read_picture(const std::string&) {
  not_built();
}
Picture read_picture_size(const std::string&) {
  not_built();
}
void write_png(const std::string&, const Picture&) {
  not_built();
}

}  // namespace veil::data
