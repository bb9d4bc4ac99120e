// jpeglib.h wants size_t and FILE before it.
// clang-format off
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <jpeglib.h>
#include <png.h>
// clang-format on

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "data/image_file.h"

namespace veil::data {
namespace {

[[noreturn]] void bad_picture(const std::string& path, const std::string& why) {
  user_error("{}: {}", path, printable(why));
}

void check_size(const std::string& path, int64_t width, int64_t height) {
  if (width < 1 || height < 1) bad_picture(path, "an image without pixels");
  if (width > kMostPixels / height)
    bad_picture(path, fmt::format("{} x {} pixels are more than the {} that are allowed", width,
                                  height, kMostPixels));
}

// Deflate makes at most 1032 bytes of one. A JPEG has at least one bit for every block of 8 x 8
// pixels, in Huffman codes; arithmetic codes, which nobody writes, are held to the same.
constexpr int64_t kMostInflation = 1032, kMostJpegPixelsPerByte = 8 * 64;

std::string too_short_text(int64_t width, int64_t height, size_t bytes) {
  return fmt::format("{} x {} pixels cannot be in a file of {} bytes: it is cut short", width,
                     height, bytes);
}

// Of the rows before they were packed, by the head that libpng has accepted: bit depth and kind are
// bytes 24 and 25.
int64_t png_row_bytes(const std::string& bytes, int64_t width) {
  const int depth = bytes[24], kind = bytes[25];
  const int channels = kind == 2 ? 3 : kind == 4 ? 2 : kind == 6 ? 4 : 1;
  return (width * depth * channels + 7) / 8;
}

// libpng's simplified interface, let go whatever happens.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
};

Picture read_png(const std::string& path, const std::string& bytes, bool pixels) {
  PngImage png;
  if (!png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()))
    bad_picture(path, fmt::format("not a sound PNG file ({})", png.image.message));
  check_size(path, png.image.width, png.image.height);
  Picture picture{png.image.width, png.image.height, {}};
  if (picture.height * png_row_bytes(bytes, picture.width) / kMostInflation >
      static_cast<int64_t>(bytes.size()))
    bad_picture(path, too_short_text(picture.width, picture.height, bytes.size()));
  if (!pixels) return picture;
  png.image.format = PNG_FORMAT_RGB;
  picture.rgb.resize(PNG_IMAGE_SIZE(png.image));
  const png_color black{0, 0, 0};
  if (!png_image_finish_read(&png.image, &black, picture.rgb.data(), 0, nullptr))
    bad_picture(path, fmt::format("not a sound PNG file ({})", png.image.message));
  return picture;
}

// libjpeg leaves by longjmp if something is wrong, and counts what it could mend.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX];
};

void leave_decoder(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
  std::longjmp(errors->leave, 1);
}

// Each pass goes over all pixels, and an empty one takes a few bytes of the file.
void count_scans(j_common_ptr info) {
  if (!info->is_decompressor ||
      reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostJpegScans)
    return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->message, sizeof errors->message, "more than %d passes", kMostJpegScans);
  std::longjmp(errors->leave, 1);
}

void keep_message(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->message);
}

// Nothing with a destructor lives in here. `out` is asked for memory once the size is known; it
// answers null for a size that is not allowed or not wanted.
struct JpegTarget {
  uint8_t* (*room)(void* context, int64_t width, int64_t height);
  void* context;
};
bool decode_jpeg(const unsigned char* bytes, size_t count, const JpegTarget& target,
                 JpegErrors& errors) {
  jpeg_decompress_struct info;
  info.err = jpeg_std_error(&errors.base);
  errors.base.error_exit = leave_decoder;
  errors.base.output_message = keep_message;
  errors.message[0] = 0;
  jpeg_create_decompress(&info);
  if (setjmp(errors.leave)) {
    jpeg_destroy_decompress(&info);
    return false;
  }
  jpeg_progress_mgr progress{};
  progress.progress_monitor = count_scans;
  info.progress = &progress;
  jpeg_mem_src(&info, bytes, count);
  jpeg_read_header(&info, TRUE);
  uint8_t* const out = target.room(target.context, info.image_width, info.image_height);
  if (out) {
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = out + static_cast<size_t>(info.output_scanline) * info.output_width * 3;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
  }
  // a file that ends early is a warning to libjpeg
  const bool sound = errors.base.num_warnings == 0;
  jpeg_destroy_decompress(&info);
  return sound;
}

struct JpegRoom {
  Picture* picture;
  size_t bytes;  // of the file
  bool pixels, too_short;
};

Picture read_jpeg(const std::string& path, const std::string& bytes, bool pixels) {
  Picture picture;
  JpegRoom room{&picture, bytes.size(), pixels, /*too_short=*/false};
  JpegErrors errors;
  const JpegTarget target{[](void* context, int64_t width, int64_t height) -> uint8_t* {
                            auto& own = *static_cast<JpegRoom*>(context);
                            own.picture->width = width;
                            own.picture->height = height;
                            const bool allowed =
                                width > 0 && height > 0 && width <= kMostPixels / height;
                            own.too_short = allowed && width * height / kMostJpegPixelsPerByte >
                                                           static_cast<int64_t>(own.bytes);
                            if (!allowed || own.too_short || !own.pixels) return nullptr;
                            own.picture->rgb.resize(static_cast<size_t>(width * height * 3));
                            return own.picture->rgb.data();
                          },
                          &room};
  const bool sound = decode_jpeg(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                 target, errors);
  if (!sound) bad_picture(path, fmt::format("not a sound JPEG file ({})", errors.message));
  check_size(path, picture.width, picture.height);
  if (room.too_short)
    bad_picture(path, too_short_text(picture.width, picture.height, bytes.size()));
  return picture;
}

Picture read_either(const std::string& path, bool pixels) {
  std::error_code unknown;
  const auto size = std::filesystem::file_size(path, unknown);
  if (!unknown && size > static_cast<uintmax_t>(kMostImageBytes))
    bad_picture(path, fmt::format("{} bytes are more than the {} that are allowed of an image",
                                  size, kMostImageBytes));
  const std::string bytes = read_file(path);
  if (bytes.size() >= 8 && png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) == 0)
    return read_png(path, bytes, pixels);
  if (bytes.size() >= 3 && std::memcmp(bytes.data(), "\xFF\xD8\xFF", 3) == 0)
    return read_jpeg(path, bytes, pixels);
  bad_picture(path, bytes.empty() ? "an empty file" : "neither a PNG nor a JPEG file");
}

}  // namespace

bool built_with_images() {
  return true;
}

std::string image_library_versions() {
  return fmt::format("libpng {}, libjpeg {}", PNG_LIBPNG_VER_STRING, JPEG_LIB_VERSION);
}

Picture read_picture(const std::string& path) {
  return read_either(path, /*pixels=*/true);
}

Picture read_picture_size(const std::string& path) {
  return read_either(path, /*pixels=*/false);
}

void write_png(const std::string& path, const Picture& picture) {
  VEIL_CHECK(static_cast<int64_t>(picture.rgb.size()) == picture.width * picture.height * 3,
             "a picture of {} x {} with {} bytes", picture.width, picture.height,
             picture.rgb.size());
  PngImage png;
  png.image.width = static_cast<png_uint_32>(picture.width);
  png.image.height = static_cast<png_uint_32>(picture.height);
  png.image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  std::string bytes;
  if (png_image_write_get_memory_size(png.image, size, 0, picture.rgb.data(), 0, nullptr)) {
    bytes.resize(size);
    if (png_image_write_to_memory(&png.image, bytes.data(), &size, 0, picture.rgb.data(), 0,
                                  nullptr)) {
      bytes.resize(size);
      write_file_atomically(path, bytes);
      return;
    }
  }
  user_error("{}: libpng could not write it ({})", path, png.image.message);
}

}  // namespace veil::data
