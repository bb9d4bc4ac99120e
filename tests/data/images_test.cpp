// Images from files and by rule: what is read, what is refused, and batches made ahead.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "data/image_batches.h"

namespace veil::data {
namespace {

namespace fs = std::filesystem;

Picture plain(int64_t width, int64_t height, uint8_t red, uint8_t green, uint8_t blue) {
  Picture picture{width, height, {}};
  for (int64_t i = 0; i < width * height; ++i) picture.rgb.insert(picture.rgb.end(), {red, green, blue});
  return picture;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class Images : public testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
    root_ = fs::temp_directory_path() / ("veil_images_" + std::to_string(getpid()));
    fs::create_directories(root_ / "cats/deep");
    fs::create_directories(root_ / "dogs");
    fs::create_directories(root_ / "empty");
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string at(const std::string& name) const { return (root_ / name).string(); }
  fs::path root_;
};

TEST_F(Images, APngComesBackAsItWasWritten) {
  Picture picture = plain(5, 3, 10, 20, 30);
  picture.rgb[7] = 200;
  write_png(at("a.png"), picture);
  const Picture read = read_picture(at("a.png"));
  EXPECT_EQ(read.width, 5);
  EXPECT_EQ(read.height, 3);
  EXPECT_EQ(read.rgb, picture.rgb);
}

TEST_F(Images, AFolderGivesItsSubFoldersAsClassesInOrder) {
  write_png(at("dogs/x.png"), plain(4, 4, 255, 0, 0));
  write_png(at("cats/b.PNG"), plain(4, 4, 0, 255, 0));
  write_png(at("cats/deep/a.png"), plain(4, 4, 0, 0, 255));
  write_file_atomically(at("cats/notes.txt"), "no image");
  write_file_atomically(at("cats/.hidden.png"), "no image");
  const ImageFolder folder(root_.string(), false, 2);
  EXPECT_EQ(folder.class_names(), (std::vector<std::string>{"cats", "dogs"}));
  ASSERT_EQ(folder.count(), 3);
  EXPECT_EQ(folder.label(0), 0);
  EXPECT_EQ(folder.label(2), 1);
  std::vector<float> pixels(3 * 2 * 2);
  folder.read(2, 2, pixels.data());
  EXPECT_EQ(pixels, (std::vector<float>{1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST_F(Images, TheMiddleIsCutOutAndResizedByArea) {
  // 6 x 2: the middle square's columns are black and white.
  Picture picture = plain(6, 2, 0, 0, 0);
  for (int64_t y = 0; y < 2; ++y) {
    for (int64_t c = 0; c < 3; ++c) picture.rgb[static_cast<size_t>((y * 6 + 3) * 3 + c)] = 255;
  }
  std::vector<float> one(3), three(27);
  centre_crop(picture, 1, one.data());
  for (const float value : one) EXPECT_NEAR(value, 0, 1e-6);
  centre_crop(picture, 3, three.data());
  EXPECT_NEAR(three[0], -1, 1e-6);
  EXPECT_NEAR(three[1], 0, 1e-6);
  EXPECT_NEAR(three[2], 1, 1e-6);
}

TEST_F(Images, BadFilesAreNamedAndCanBeLeftOut) {
  write_png(at("cats/good.png"), plain(4, 4, 0, 255, 0));
  const std::string sound = read_file(at("cats/good.png"));
  write_file_atomically(at("dogs/cut.png"), sound.substr(0, sound.size() / 2));
  write_file_atomically(at("dogs/text.jpg"), "this is no image");
  write_file_atomically(at("dogs/void.png"), "");
  write_file_atomically(at("dogs/broken.jpeg"), std::string("\xFF\xD8\xFF\xE0 and then nonsense", 21));
  for (const char* name : {"dogs/cut.png", "dogs/text.jpg", "dogs/void.png", "dogs/broken.jpeg"}) {
    const std::string message = message_of([&] { read_picture(at(name)); });
    EXPECT_EQ(message.find(at(name)), 0U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_NE(message_of([&] { ImageFolder(root_.string(), false, 2); }), "");
  const ImageFolder folder(root_.string(), true, 2);
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(folder.left_out().size(), 4U);
}

TEST_F(Images, AHugeImageIsRefusedBeforeItsPixelsAreMade) {
  // A PNG head alone: 100000 x 100000 pixels.
  std::string bytes("\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\1\x86\xA0\0\1\x86\xA0\x8\x2\0\0\0", 29);
  bytes += std::string("\x4C\x6F\xA2\x4F", 4);
  write_file_atomically(at("dogs/huge.png"), bytes);
  const std::string message = message_of([&] { read_picture(at("dogs/huge.png")); });
  EXPECT_EQ(message.find(at("dogs/huge.png")), 0U) << message;
}

TEST_F(Images, AFolderWithoutImagesIsSaid) {
  EXPECT_NE(message_of([&] { ImageFolder(root_.string(), false, 1); }).find("holds no images"), std::string::npos);
  EXPECT_NE(message_of([&] { ImageFolder(at("nowhere"), false, 1); }).find("is no folder"), std::string::npos);
}

TEST(ImageBatches, AreTheOrdersAndGoOnWhereTheyWereLeft) {
  const auto shapes = std::make_shared<Shapes>(20, 3);
  auto order = [] { return std::make_unique<ShuffledOrder>(20, 8, 5); };
  ImageBatches all(shapes, order(), 8, 3, {}, 3);
  std::vector<ImageBatch> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(all.next().value());
  for (const ImageBatch& batch : taken) {
    EXPECT_EQ(batch.samples, order()->samples(batch.position));
    for (size_t i = 0; i < batch.samples.size(); ++i) EXPECT_EQ(batch.labels[i], batch.samples[i] % 4);
  }
  ImageBatches later(shapes, order(), 8, 3, taken[2].position, 1);
  EXPECT_EQ(later.next()->pixels, taken[2].pixels);
}

TEST(ImageBatches, GreyIsTheColoursMean) {
  const Shapes shapes(4, 1);
  const ImageBatch grey = make_image_batch(shapes, {2}, 6, 1), color = make_image_batch(shapes, {2}, 6, 3);
  for (size_t p = 0; p < 36; ++p)
    EXPECT_NEAR(grey.pixels[p], (color.pixels[p] + color.pixels[36 + p] + color.pixels[72 + p]) / 3, 1e-6);
}

TEST(Shapes, DifferByClassAndComeBackTheSame) {
  const Shapes shapes(8, 1);
  std::vector<float> first(3 * 16 * 16), second(first.size());
  shapes.read(1, 16, first.data());
  shapes.read(1, 16, second.data());
  EXPECT_EQ(first, second);
  shapes.read(5, 16, second.data());
  EXPECT_NE(first, second);
  for (const float value : first) EXPECT_LE(std::fabs(value), 1);
}

}  // namespace
}  // namespace veil::data
