// A PNG or JPEG file.
#include "data/image_file.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  const std::string path = fuzz::input_file("input.png", fuzz::text_of(data, size));
  fuzz::allow_user_error([&] {
    const data::Picture picture = data::read_picture(path);
    fuzz::require(picture.width > 0 && picture.height > 0, "pictures have pixels");
    fuzz::require(std::ssize(picture.rgb) == picture.width * picture.height * 3,
                  "three bytes for each pixel");
    const data::Picture head = data::read_picture_size(path);
    fuzz::require(head.width == picture.width && head.height == picture.height,
                  "the head says the picture's size");
  });
  return 0;
}
