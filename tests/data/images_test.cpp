// Images from files and by rule: what is read, what is refused, and batches made ahead.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "data/image_batches.h"

namespace veil::data {
namespace {

namespace fs = std::filesystem;

Picture plain(int64_t width, int64_t height, uint8_t red, uint8_t green, uint8_t blue) {
  Picture picture{width, height, {}};
  for (int64_t i = 0; i < width * height; ++i)
    picture.rgb.insert(picture.rgb.end(), {red, green, blue});
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

// 8 x 4 pixels of (230, 120, 40), as libjpeg wrote them at quality 90; in hexadecimal.
constexpr const char* kJpeg =
    "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a"
    "070706"
    "080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb004301030404"
    "050405"
    "09050509140d0b0d141414141414141414141414141414141414141414141414141414141414141414141414141414"
    "141414"
    "1414141414141414ffc00011080004000803011100021101031101ffc4001400010000000000000000000000000000"
    "0006ff"
    "c40014100100000000000000000000000000000000ffc40014010100000000000000000000000000000008ffc40014"
    "110100"
    "000000000000000000000000000000ffda000c03010002110311003f00563114afffd9";

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string big_endian(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

// PNG's own checksum (CRC-32 of IEEE 802.3).
uint32_t checksum(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320U : crc >> 1;
  }
  return ~crc;
}

// A sound head, and nothing behind it but the begin of its pixels.
std::string png_head(uint32_t width, uint32_t height) {
  auto chunk = [](const std::string& content, uint32_t size) {
    return big_endian(size, 4) + content + big_endian(checksum(content), 4);
  };
  return std::string("\x89PNG\r\n\x1A\n") +
         chunk(
             "IHDR" + big_endian(width, 4) + big_endian(height, 4) + std::string("\x8\x2\0\0\0", 5),
             13) +
         chunk("IDAT", 0);
}

// The JPEG above, whose frame says another size.
std::string jpeg_of_size(uint32_t width, uint32_t height) {
  std::string bytes = bytes_of(kJpeg);
  const size_t frame = bytes.find("\xFF\xC0");
  return bytes.replace(frame + 5, 4, big_endian(height, 2) + big_endian(width, 2));
}

TEST_F(Images, AJpegIsDecodedAndTruncatedOnesAreRefused) {
  const std::string bytes = bytes_of(kJpeg);
  write_file_atomically(at("dogs/whole.jpg"), bytes);
  const Picture read = read_picture(at("dogs/whole.jpg"));
  ASSERT_EQ(read.width, 8);
  ASSERT_EQ(read.height, 4);
  const int expected[3] = {230, 120, 40};
  for (size_t i = 0; i < read.rgb.size(); ++i) EXPECT_NEAR(read.rgb[i], expected[i % 3], 3) << i;
  const ImageFolder folder(root_.string(), BadImages::seen_when_read, 1);
  std::vector<float> pixels(3 * 2 * 2);
  folder.read(0, 2, pixels.data());
  EXPECT_NEAR(pixels[0], 230 / 127.5 - 1, 0.03);
  EXPECT_NEAR(pixels[8], 40 / 127.5 - 1, 0.03);
  const uint64_t hash = folder.hash(0);
  write_file_atomically(at("dogs/whole.jpg"), bytes + "x");
  EXPECT_NE(folder.hash(0), hash);
  write_file_atomically(at("dogs/cut.jpg"), bytes.substr(0, bytes.size() / 3));
  EXPECT_NE(message_of([&] { read_picture(at("dogs/cut.jpg")); }).find("dogs/cut.jpg"),
            std::string::npos);
}

TEST_F(Images, PaddingIsAnEmptyImageWithoutAClassOfItsOwn) {
  const Shapes shapes(10, 3);
  const ImageBatch batch = make_image_batch(shapes, {7, kNoSample}, 4, 3);
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{3, 0}));
  EXPECT_NE(batch.pixels[0], 0);
  for (size_t i = 48; i < 96; ++i) EXPECT_EQ(batch.pixels[i], 0);
}

TEST_F(Images, AFolderGivesItsSubFoldersAsClassesInOrder) {
  write_png(at("dogs/x.png"), plain(4, 4, 255, 0, 0));
  write_png(at("cats/b.PNG"), plain(4, 4, 0, 255, 0));
  write_png(at("cats/deep/a.png"), plain(4, 4, 0, 0, 255));
  write_file_atomically(at("cats/notes.txt"), "no image");
  write_file_atomically(at("cats/.hidden.png"), "no image");
  const ImageFolder folder(root_.string(), BadImages::seen_when_read, 2);
  EXPECT_EQ(folder.class_names(), (std::vector<std::string>{"cats", "dogs", "empty"}));
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
  write_file_atomically(at("dogs/broken.jpeg"),
                        std::string("\xFF\xD8\xFF\xE0 and then nonsense", 21));
  for (const char* name : {"dogs/cut.png", "dogs/text.jpg", "dogs/void.png", "dogs/broken.jpeg"}) {
    const std::string message = message_of([&] { read_picture(at(name)); });
    EXPECT_EQ(message.find(at(name)), 0U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_NE(message_of([&] { ImageFolder(root_.string(), BadImages::seen_when_read, 2); }), "");
  const ImageFolder folder(root_.string(), BadImages::left_out, 2);
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(folder.left_out().size(), 4U);
}

// One that only decoding finds: its head is sound.
TEST_F(Images, EveryFileCanBeDecodedAtOnce) {
  write_png(at("cats/good.png"), plain(40, 40, 0, 255, 0));
  const std::string sound = read_file(at("cats/good.png"));
  write_file_atomically(at("dogs/cut.png"), sound.substr(0, sound.size() - 20));
  EXPECT_EQ(message_of([&] { ImageFolder(root_.string(), BadImages::seen_when_read, 2); }), "");
  EXPECT_NE(
      message_of([&] { ImageFolder(root_.string(), BadImages::refused, 2); }).find("dogs/cut.png"),
      std::string::npos);
}

// Otherwise the last image of a class would decide the labels of all classes behind it.
TEST_F(Images, AnEmptySubFolderIsStillAClass) {
  write_png(at("ants/a.png"), plain(4, 4, 0, 255, 0));
  write_png(at("cats/c.png"), plain(4, 4, 0, 255, 0));
  fs::create_directories(at("bees"));
  const ImageFolder folder(root_.string(), BadImages::seen_when_read, 1);
  EXPECT_EQ(folder.class_names(),
            (std::vector<std::string>{"ants", "bees", "cats", "dogs", "empty"}));
  EXPECT_EQ(folder.label(1), 2);
}

TEST_F(Images, AHugeImageIsRefusedBeforeItsPixelsAreMade) {
  write_file_atomically(at("dogs/huge.png"), png_head(60000, 60000));
  write_file_atomically(at("dogs/huge.jpg"), jpeg_of_size(60000, 60000));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  const auto expect_refused = [&](const std::string& name, const std::function<void()>& work) {
    EXPECT_EQ(message_of(work),
              at(name) + ": 60000 x 60000 pixels are more than the 67108864 that are allowed");
  };
  for (const char* name : {"dogs/huge.png", "dogs/huge.jpg"}) {
    expect_refused(name, [&] { read_picture(at(name)); });
    expect_refused(name, [&] { read_picture_size(at(name)); });
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 1 << 20)
      << "kB; the pixels would have been 10.8 GB";
  write_png(at("cats/good.png"), plain(4, 4, 0, 255, 0));
  EXPECT_EQ(ImageFolder(root_.string(), BadImages::left_out, 1).left_out().size(), 2U);
}

// What a file claims is compared with its length: 8000 x 8000 pixels are allowed, and would take
// 192 MB and seconds to find that they are not there.
TEST_F(Images, AnImageThatItsFileIsTooShortForIsRefusedBeforeItsPixelsAreMade) {
  write_file_atomically(at("dogs/short.png"), png_head(8000, 8000));
  write_file_atomically(at("dogs/short.jpg"), jpeg_of_size(8000, 8000));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (const char* name : {"dogs/short.png", "dogs/short.jpg"}) {
    EXPECT_EQ(message_of([&] {
                read_picture(at(name));
              }).find(at(name) + ": 8000 x 8000 pixels cannot be in a file of "),
              0U)
        << message_of([&] { read_picture(at(name)); });
    EXPECT_NE(message_of([&] { read_picture_size(at(name)); }), "");
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 << 10) << "kB";
}

// The least that a sound file takes: one color, which packs better than anything else.
TEST_F(Images, ASoundImageIsNeverTooShort) {
  for (const int64_t side : {64, 1000, 3000}) {
    write_png(at("dogs/plain.png"), plain(side, side, 0, 0, 0));
    EXPECT_EQ(read_picture(at("dogs/plain.png")).width, side);
  }
}

TEST_F(Images, AFileThatIsTooLongForAnImageIsNotRead) {
  write_file_atomically(at("dogs/long.png"), png_head(8, 8));
  fs::resize_file(at("dogs/long.png"), static_cast<uintmax_t>(kMostImageBytes) + 1);  // sparse
  EXPECT_EQ(message_of([&] { read_picture(at("dogs/long.png")); }),
            at("dogs/long.png") +
                ": 268435457 bytes are more than the 268435456 that are allowed of an image");
}

TEST_F(Images, LinksThatLeadInACircleAreOneLine) {
  write_png(at("cats/good.png"), plain(4, 4, 0, 255, 0));
  fs::create_directory_symlink(at("cats"), at("cats/deep/again"));
  const auto opened = [&] {
    return message_of([&] { ImageFolder(root_.string(), BadImages::seen_when_read, 1); });
  };
  EXPECT_NE(opened().find("the link leads back to"), std::string::npos) << opened();
  fs::remove(at("cats/deep/again"));
  fs::create_directory_symlink(root_, at("cats/deep/all"));
  EXPECT_NE(opened().find("the link leads back to"), std::string::npos) << opened();
  fs::remove(at("cats/deep/all"));
  // a link to itself
  fs::create_symlink(at("cats/self.png"), at("cats/self.png"));
  EXPECT_NE(opened().find("cats/self.png"), std::string::npos) << opened();
  fs::remove(at("cats/self.png"));
  // a folder that is linked twice is no circle
  fs::create_directory_symlink(at("cats"), at("dogs/cats"));
  EXPECT_EQ(opened(), "");
}

// Names of classes go into the config.json of an export.
TEST_F(Images, AClassWhoseNameIsNotUtf8IsRefused) {
  write_png(at("cats/good.png"), plain(4, 4, 0, 255, 0));
  fs::create_directories(at("caf\xe9"));
  EXPECT_NE(message_of([&] {
              ImageFolder(root_.string(), BadImages::seen_when_read, 1);
            }).find("caf\\xe9' is not UTF-8"),
            std::string::npos);
}

TEST_F(Images, AFolderWithoutImagesIsSaid) {
  EXPECT_NE(message_of([&] {
              ImageFolder(root_.string(), BadImages::seen_when_read, 1);
            }).find("holds no images"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              ImageFolder(at("nowhere"), BadImages::seen_when_read, 1);
            }).find("is no folder"),
            std::string::npos);
}

TEST(ImageBatches, AreTheOrdersAndGoOnWhereTheyWereLeft) {
  const auto shapes = std::make_shared<Shapes>(20, 3);
  auto order = [] { return std::make_unique<ShuffledOrder>(20, 8, 5); };
  ImageBatches all(shapes, order(), 8, 3, {}, 3);
  std::vector<ImageBatch> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(all.next().value());
  for (const ImageBatch& batch : taken) {
    EXPECT_EQ(batch.samples, order()->samples(batch.position));
    for (size_t i = 0; i < batch.samples.size(); ++i)
      EXPECT_EQ(batch.labels[i], batch.samples[i] % 4);
  }
  ImageBatches later(shapes, order(), 8, 3, taken[2].position, 1);
  EXPECT_EQ(later.next()->pixels, taken[2].pixels);
}

std::set<uint64_t> hashes_of(const ImageSource& images) {
  std::set<uint64_t> hashes;
  for (int64_t i = 0; i < images.count(); ++i) hashes.insert(images.hash(i));
  return hashes;
}

TEST(ImageSplit, HoldsAPartOutThatTrainingNeverSees) {
  const auto shapes = std::make_shared<Shapes>(1000, 3);
  const ImageSplit split = split_images(shapes, 0.1, 2);
  EXPECT_EQ(split.train->count() + split.held_out->count(), 1000);
  EXPECT_NEAR(static_cast<double>(split.held_out->count()), 100, 40);
  const std::set<uint64_t> train = hashes_of(*split.train), held_out = hashes_of(*split.held_out);
  EXPECT_EQ(train.size() + held_out.size(), 1000U);
  for (const uint64_t hash : held_out) EXPECT_EQ(train.count(hash), 0U);
  EXPECT_EQ(split.held_out->class_names(), shapes->class_names());
  EXPECT_EQ(split_images(shapes, 0, 1).held_out->count(), 0);
}

TEST(ImageSplit, AnotherImageMovesNone) {
  const std::set<uint64_t> few =
      hashes_of(*split_images(std::make_shared<Shapes>(500, 3), 0.2, 1).held_out);
  const std::set<uint64_t> more =
      hashes_of(*split_images(std::make_shared<Shapes>(501, 3), 0.2, 1).held_out);
  for (const uint64_t hash : few) EXPECT_EQ(more.count(hash), 1U);
  EXPECT_LE(more.size(), few.size() + 1);
}

// A folder's images stand class by class: in that order a short evaluation would see one class.
TEST_F(Images, TheFirstHeldOutOnesAreOfAllClasses) {
  for (const char* name : {"cats", "dogs"}) {
    for (uint8_t i = 0; i < 20; ++i)
      write_png(at(name) + "/" + std::to_string(i) + ".png",
                plain(2, 2, i, name[0] == 'c' ? 0 : 255, 0));
  }
  const auto folder = std::make_shared<ImageFolder>(root_.string(), BadImages::seen_when_read, 1);
  const ImageSplit split = split_images(folder, 0.9, 2);
  ASSERT_GT(split.held_out->count(), 20);
  std::set<int64_t> labels;
  for (int64_t i = 0; i < 10; ++i) labels.insert(split.held_out->label(i));
  EXPECT_EQ(labels, (std::set<int64_t>{0, 1}));
}

// Equal files are one image to the split, wherever they stand.
TEST_F(Images, ACopyFallsOnTheSameSide) {
  for (uint8_t i = 0; i < 30; ++i) {
    for (const char* name : {"cats", "dogs"})
      write_png(at(name) + "/" + std::to_string(i) + ".png", plain(2, 2, i, 0, 0));
  }
  const auto folder = std::make_shared<ImageFolder>(root_.string(), BadImages::seen_when_read, 1);
  const ImageSplit split = split_images(folder, 0.5, 1);
  const std::set<uint64_t> train = hashes_of(*split.train), held_out = hashes_of(*split.held_out);
  EXPECT_EQ(train.size() + held_out.size(), 30U);
  EXPECT_GT(std::min(train.size(), held_out.size()), 0U);
}

TEST(ImageBatches, GreyIsTheColoursMean) {
  const Shapes shapes(4, 1);
  const ImageBatch grey = make_image_batch(shapes, {2}, 6, 1),
                   color = make_image_batch(shapes, {2}, 6, 3);
  for (size_t p = 0; p < 36; ++p)
    EXPECT_NEAR(grey.pixels[p], (color.pixels[p] + color.pixels[36 + p] + color.pixels[72 + p]) / 3,
                1e-6);
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
