#include "data/image_source.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "base/utf8.h"
#include "data/content_hash.h"
#include "data/samples.h"
#include "kernels/philox.h"

namespace veil::data {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

bool hidden(const fs::path& path) {
  return path.filename().string().rfind('.', 0) == 0;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!hidden(entry->path())) found.push_back(entry->path());
  }
  if (error) user_error("folder '{}' cannot be read: {}", folder.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

// Whether it is a folder, links followed. UserError for a link that leads in a circle.
bool is_folder(const fs::path& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (error && error != std::errc::no_such_file_or_directory)
    user_error("'{}' cannot be read: {}", path.string(), error.message());
  return folder;
}

// Links to folders are followed. `above` are the folders that lead here, so that a link to one of
// them is an error and not a walk without end.
void add_images(const fs::path& folder, std::vector<fs::path>& list,
                std::vector<fs::path> above = {}) {
  std::error_code error;
  above.push_back(fs::canonical(folder, error));
  if (error) user_error("folder '{}' cannot be read: {}", folder.string(), error.message());
  if (std::find(above.begin(), above.end() - 1, above.back()) != above.end() - 1)
    user_error(
        "folder '{}': the link leads back to '{}', so its images would have no end; remove it",
        folder.string(), above.back().string());
  for (const fs::path& path : sorted_entries(folder)) {
    if (is_folder(path)) {
      add_images(path, list, above);
    } else if (is_image_name(path)) {
      list.push_back(path);
    }
  }
}

// Calls work(i) for every i in [0, count) on several threads; the first error by place is thrown.
template <typename Work>
void on_threads(int64_t count, int threads, const Work& work) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> running;
  std::vector<std::exception_ptr> failed(static_cast<size_t>(count));
  for (int t = 0; t < std::max(1, threads); ++t) {
    running.emplace_back([&] {
      for (int64_t i = next++; i < count; i = next++) {
        try {
          work(i);
        } catch (...) {
          failed[static_cast<size_t>(i)] = std::current_exception();
        }
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::exception_ptr& error : failed) {
    if (error) std::rethrow_exception(error);
  }
}

// How much of pixel i of `from` lies under pixel j of `to`, where both cover the same length.
struct Cover {
  int64_t first;
  std::vector<double> weights;
};
std::vector<Cover> covers(int64_t from, int64_t to) {
  std::vector<Cover> list;
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  for (int64_t j = 0; j < to; ++j) {
    const double begin = static_cast<double>(j) * ratio, end = begin + ratio;
    Cover cover{static_cast<int64_t>(begin), {}};
    for (int64_t i = cover.first; i < from && static_cast<double>(i) < end; ++i) {
      const double part =
          std::min(end, static_cast<double>(i + 1)) - std::max(begin, static_cast<double>(i));
      if (part > 0 || cover.weights.empty()) cover.weights.push_back(std::max(part, 1e-12) / ratio);
    }
    list.push_back(std::move(cover));
  }
  return list;
}

}  // namespace

void centre_crop(const Picture& picture, int64_t size, float* out) {
  const int64_t side = std::min(picture.width, picture.height);
  const int64_t left = (picture.width - side) / 2, top = (picture.height - side) / 2;
  const std::vector<Cover> cover = covers(side, size);
  // [side, size, 3]: resized across
  std::vector<double> rows(static_cast<size_t>(side * size * 3));
  for (int64_t y = 0; y < side; ++y) {
    const uint8_t* line = picture.rgb.data() + ((top + y) * picture.width + left) * 3;
    for (int64_t x = 0; x < size; ++x) {
      const Cover& c = cover[static_cast<size_t>(x)];
      for (int64_t channel = 0; channel < 3; ++channel) {
        double sum = 0;
        for (size_t k = 0; k < c.weights.size(); ++k)
          sum += c.weights[k] * line[(c.first + static_cast<int64_t>(k)) * 3 + channel];
        rows[static_cast<size_t>((y * size + x) * 3 + channel)] = sum;
      }
    }
  }
  for (int64_t y = 0; y < size; ++y) {
    const Cover& c = cover[static_cast<size_t>(y)];
    for (int64_t x = 0; x < size; ++x) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        double sum = 0;
        for (size_t k = 0; k < c.weights.size(); ++k)
          sum +=
              c.weights[k] * rows[static_cast<size_t>(
                                 ((c.first + static_cast<int64_t>(k)) * size + x) * 3 + channel)];
        out[(channel * size + y) * size + x] = static_cast<float>(sum / 127.5 - 1);
      }
    }
  }
}

Picture picture_grid(const float* images, int64_t count, int64_t size, int64_t columns,
                     int64_t gap) {
  VEIL_CHECK(count > 0 && columns > 0, "a grid of {} images in {} columns", count, columns);
  const int64_t rows = (count + columns - 1) / columns;
  Picture grid{columns * (size + gap) + gap, rows * (size + gap) + gap, {}};
  grid.rgb.assign(static_cast<size_t>(grid.width * grid.height * 3), 255);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = gap + i % columns * (size + gap), top = gap + i / columns * (size + gap);
    for (int64_t channel = 0; channel < 3; ++channel) {
      for (int64_t y = 0; y < size; ++y) {
        for (int64_t x = 0; x < size; ++x) {
          const float value = images[((i * 3 + channel) * size + y) * size + x];
          const float level = std::isnan(value) ? 0 : (std::clamp(value, -1.0F, 1.0F) + 1) * 127.5F;
          grid.rgb[static_cast<size_t>(((top + y) * grid.width + left + x) * 3 + channel)] =
              static_cast<uint8_t>(std::lround(level));
        }
      }
    }
  }
  return grid;
}

Picture enlarged(const Picture& picture, int64_t times) {
  Picture large{picture.width * times, picture.height * times, {}};
  large.rgb.resize(static_cast<size_t>(large.width * large.height * 3));
  for (int64_t y = 0; y < large.height; ++y) {
    for (int64_t x = 0; x < large.width; ++x) {
      const uint8_t* from = picture.rgb.data() + (y / times * picture.width + x / times) * 3;
      std::copy(from, from + 3, large.rgb.data() + (y * large.width + x) * 3);
    }
  }
  return large;
}

ImageFolder::ImageFolder(const std::string& folder, BadImages bad_images, int threads) {
  if (!built_with_images()) read_picture_size(folder);  // says what is missing
  if (!fs::is_directory(folder))
    field_error("data",
                "{} is no folder: allowed are a folder of images with one sub-folder per class, or "
                "shapes",
                folder);
  for (const fs::path& path : sorted_entries(folder)) {
    if (!is_folder(path)) continue;
    std::vector<fs::path> images;
    add_images(path, images, {fs::canonical(folder)});
    for (const fs::path& image : images)
      files_.push_back({image.string(), static_cast<int64_t>(classes_.size())});
    classes_.push_back(path.filename().string());
    if (find_invalid_utf8(classes_.back()) != std::string::npos)
      user_error("the class folder '{}' is not UTF-8: allowed are names in UTF-8; rename it",
                 printable(path.string()));
  }
  if (files_.empty())
    field_error("data",
                "{} holds no images: .png, .jpg or .jpeg files are looked for in its sub-folders, "
                "one per class",
                folder);
  std::vector<std::string> bad(files_.size());
  on_threads(count(), threads, [&](int64_t i) {
    const std::string& path = files_[static_cast<size_t>(i)].path;
    if (bad_images == BadImages::seen_when_read) {
      read_picture_size(path);
      return;
    }
    if (bad_images == BadImages::refused) {
      read_picture(path);
      return;
    }
    try {
      read_picture(path);
    } catch (const UserError& error) {
      bad[static_cast<size_t>(i)] = error.what();
    }
  });
  std::vector<File> sound;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (bad[i].empty()) {
      sound.push_back(files_[i]);
    } else {
      left_out_.push_back(bad[i]);
    }
  }
  files_ = std::move(sound);
  if (files_.empty())
    user_error("folder '{}': none of its {} images can be read; the first: {}", folder,
               left_out_.size(), left_out_[0]);
}

ImageSplit split_images(const std::shared_ptr<const ImageSource>& whole, double held_out_fraction,
                        int threads) {
  std::vector<uint64_t> hashes(static_cast<size_t>(whole->count()));
  if (held_out_fraction > 0)
    on_threads(whole->count(), threads,
               [&](int64_t i) { hashes[static_cast<size_t>(i)] = whole->hash(i); });
  std::vector<int64_t> train, held_out;
  for (int64_t i = 0; i < whole->count(); ++i)
    (is_held_out(hashes[static_cast<size_t>(i)], held_out_fraction) ? held_out : train)
        .push_back(i);
  std::stable_sort(held_out.begin(), held_out.end(), [&](int64_t a, int64_t b) {
    return hashes[static_cast<size_t>(a)] < hashes[static_cast<size_t>(b)];
  });
  return {std::make_shared<ImagePart>(whole, std::move(train)),
          std::make_shared<ImagePart>(whole, std::move(held_out))};
}

void check_images(const ImageSource& images, int64_t count, int threads) {
  on_threads(count, threads, [&](int64_t i) {
    float pixel[3];
    images.read(i, 1, pixel);
  });
}

void ImageFolder::read(int64_t sample, int64_t size, float* out) const {
  centre_crop(read_picture(files_[static_cast<size_t>(sample)].path), size, out);
}

uint64_t ImageFolder::hash(int64_t sample) const {
  return content_hash(read_file(files_[static_cast<size_t>(sample)].path));
}

Sha256Digest ImageFolder::digest(int64_t sample) const {
  return sha256(read_file(files_[static_cast<size_t>(sample)].path));
}

uint64_t Shapes::hash(int64_t sample) const {
  return content_hash(fmt::format("shape {} of seed {}", sample, seed_));
}

Sha256Digest Shapes::digest(int64_t sample) const {
  return sha256(fmt::format("shape {} of seed {}", sample, seed_));
}

void Shapes::read(int64_t sample, int64_t size, float* out) const {
  const auto index = static_cast<uint64_t>(sample);
  const Philox4 first = philox4x32(seed_, index, 0x5348);
  auto unit = [](uint32_t word) { return std::ldexp(static_cast<double>(word >> 8), -24); };
  const double radius = 0.32 + 0.08 * unit(first.word[0]);
  const double x0 = 0.45 + 0.1 * unit(first.word[1]), y0 = 0.45 + 0.1 * unit(first.word[2]);
  // A bright hue on a dark ground.
  const double hue = 6 * unit(first.word[3]), ground = 0.1;
  auto channel_of = [&](double shift) {
    const double distance = std::fabs(std::fmod(hue + shift, 6.0) - 3);
    return 0.25 + 0.75 * std::clamp(distance - 1, 0.0, 1.0);
  };
  const double color[3] = {channel_of(0), channel_of(4), channel_of(2)};
  const int64_t kind = label(sample);
  auto inside = [&](double x, double y) {
    const double dx = (x - x0) / radius, dy = (y - y0) / radius;
    switch (kind) {
      case 0:
        return dx * dx + dy * dy <= 1;
      case 1:
        return std::max(std::fabs(dx), std::fabs(dy)) <= 0.85;
      case 2:
        return dy <= 0.8 && dy >= -1 && std::fabs(dx) <= (dy + 1) / 1.8;
      default:
        return std::max(std::fabs(dx), std::fabs(dy)) <= 1 &&
               std::min(std::fabs(dx), std::fabs(dy)) <= 0.38;
    }
  };
  constexpr int64_t kFine = 4;  // points across a pixel
  const double step = 1 / static_cast<double>(size * kFine);
  for (int64_t y = 0; y < size; ++y) {
    for (int64_t x = 0; x < size; ++x) {
      int64_t hits = 0;
      for (int64_t k = 0; k < kFine * kFine; ++k) {
        const double px = (static_cast<double>(x * kFine + k % kFine) + 0.5) * step;
        const double py = (static_cast<double>(y * kFine + k / kFine) + 0.5) * step;
        hits += inside(px, py) ? 1 : 0;
      }
      const double part = static_cast<double>(hits) / static_cast<double>(kFine * kFine);
      for (int64_t c = 0; c < 3; ++c)
        out[(c * size + y) * size + x] =
            static_cast<float>(2 * (part * color[c] + (1 - part) * ground) - 1);
    }
  }
}

}  // namespace veil::data
