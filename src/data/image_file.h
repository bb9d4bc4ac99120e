// Pictures in files: PNG and JPEG in, PNG out. A build without libpng and libjpeg says so
// (MissingBackend).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace veil::data {

struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// More is taken for a mistake, or an attack: the pixels of an image (192 MiB as RGB), the bytes of a
// file, and the passes over a progressive JPEG.
inline constexpr int64_t kMostPixels = int64_t{1} << 26;
inline constexpr int64_t kMostImageBytes = int64_t{1} << 28;
inline constexpr int kMostJpegScans = 64;

bool built_with_images();
std::string image_library_versions();  // "libpng 1.6.39, libjpeg 6.2", or ""

// Whichever of the two the file is, by its first bytes; grey and palettes become RGB, transparency
// is laid on black. UserError, which names the file, if it is neither, broken, or beyond the limits
// above. What the file's head claims is compared with its length before memory is taken for it.
Picture read_picture(const std::string& path);
// The same for the file's head alone: width and height are set, no pixels.
Picture read_picture_size(const std::string& path);
// Whole or not at all.
void write_png(const std::string& path, const Picture& picture);

}  // namespace veil::data
