// Images with a class each: from a folder, or drawn by rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "data/image_file.h"

namespace veil::data {

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t count() const = 0;
  virtual std::vector<std::string> class_names() const = 0;
  virtual int64_t label(int64_t sample) const = 0;
  // [3, size, size] in [-1, 1]. Any number of threads. UserError that names the file if it
  // cannot be read.
  virtual void read(int64_t sample, int64_t size, float* out) const = 0;
  // Of what the sample is made from, any number of threads: the hash decides the split, the digest
  // tells two data sets apart.
  virtual uint64_t hash(int64_t sample) const = 0;
  virtual Sha256Digest digest(int64_t sample) const = 0;
};

// What becomes of files that are no sound images. seen_when_read: heads are read at once, and what
// is wrong behind them throws in read(). The others decode every file at once.
enum class BadImages { seen_when_read, refused, left_out };

// PNG and JPEG files (.png, .jpg, .jpeg in any case) below the folder's sub-folders; a sub-folder
// is a class, in alphabetical order, even if it holds no image: taking one image away must not
// give others another class. Names that begin with a dot are passed over. A file that is no sound
// image is a UserError unless it is left out.
class ImageFolder final : public ImageSource {
 public:
  ImageFolder(const std::string& folder, BadImages bad_images, int threads);
  int64_t count() const override { return static_cast<int64_t>(files_.size()); }
  std::vector<std::string> class_names() const override { return classes_; }
  int64_t label(int64_t sample) const override { return files_[static_cast<size_t>(sample)].label; }
  void read(int64_t sample, int64_t size, float* out) const override;
  uint64_t hash(int64_t sample) const override;  // of the file's bytes
  Sha256Digest digest(int64_t sample) const override;
  const std::vector<std::string>& left_out() const { return left_out_; }  // messages
  const std::string& path(int64_t sample) const { return files_[static_cast<size_t>(sample)].path; }

 private:
  struct File {
    std::string path;
    int64_t label;
  };
  std::vector<File> files_;
  std::vector<std::string> classes_, left_out_;
};

// Discs, squares, triangles and crosses near the middle, of random place, size and hue: class =
// sample modulo 4, the rest by Philox from (seed, sample).
class Shapes final : public ImageSource {
 public:
  Shapes(int64_t count, uint64_t seed) : count_(count), seed_(seed) {}
  int64_t count() const override { return count_; }
  std::vector<std::string> class_names() const override {
    return {"disc", "square", "triangle", "cross"};
  }
  int64_t label(int64_t sample) const override { return sample % 4; }
  void read(int64_t sample, int64_t size, float* out) const override;
  uint64_t hash(int64_t sample) const override;
  Sha256Digest digest(int64_t sample) const override;

 private:
  int64_t count_;
  uint64_t seed_;
};

// Some of another source's images, in the given order. All of its classes stay, with their labels.
class ImagePart final : public ImageSource {
 public:
  ImagePart(std::shared_ptr<const ImageSource> whole, std::vector<int64_t> samples)
      : whole_(std::move(whole)), samples_(std::move(samples)) {}
  int64_t count() const override { return static_cast<int64_t>(samples_.size()); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  int64_t label(int64_t sample) const override { return whole_->label(at(sample)); }
  void read(int64_t sample, int64_t size, float* out) const override {
    whole_->read(at(sample), size, out);
  }
  uint64_t hash(int64_t sample) const override { return whole_->hash(at(sample)); }
  Sha256Digest digest(int64_t sample) const override { return whole_->digest(at(sample)); }

 private:
  int64_t at(int64_t sample) const { return samples_[static_cast<size_t>(sample)]; }
  std::shared_ptr<const ImageSource> whole_;
  std::vector<int64_t> samples_;
};

// Decided by an image's hash alone, as for texts (data/samples.h): adding or removing one moves no
// other, and equal files fall on the same side. The held-out ones are in the order of their
// hashes, so that the first few are of all classes.
struct ImageSplit {
  std::shared_ptr<const ImageSource> train, held_out;  // either may have no images
};
ImageSplit split_images(const std::shared_ptr<const ImageSource>& whole, double held_out_fraction,
                        int threads);

// Decodes the first `count` images: UserError if one is broken.
void check_images(const ImageSource& images, int64_t count, int threads);

// The largest square in the middle, resized to size x size: each pixel is the mean of what it
// covers. [3, size, size] in [-1, 1].
void centre_crop(const Picture& picture, int64_t size, float* out);

// Images next to each other, `columns` in a row with a line of `gap` white pixels between them:
// [count, 3, size, size] in [-1, 1].
Picture enlarged(const Picture& picture, int64_t times);  // every pixel a square of them
Picture picture_grid(const float* images, int64_t count, int64_t size, int64_t columns,
                     int64_t gap = 2);

}  // namespace veil::data
