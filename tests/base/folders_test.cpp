#include "base/folders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "data/test_folder.h"

namespace veil {
namespace {

class Folders : public data::FolderTest {
 protected:
  static mode_t mode_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts.st_mode & 0777;
  }
};

TEST_F(Folders, AreMadeForTheirOwnerAloneWhateverTheUmask) {
  for (const mode_t mask : {0000u, 0022u, 0077u}) {
    const mode_t before = umask(mask);
    const std::string folder = path("runs/" + std::to_string(mask));
    make_private_folder(folder + "/");
    make_private_folder(folder);  // is there
    umask(before);
    EXPECT_EQ(mode_of(folder), 0700u) << mask;
  }
  write("file", "x");
  EXPECT_THAT(data::complaint([&] { make_private_folder(path("file/inside")); }),
              ::testing::HasSubstr("cannot make folder"));
}

TEST_F(Folders, ThatAreThereKeepTheirMode) {
  std::filesystem::create_directory(path("shared"));
  ASSERT_EQ(chmod(path("shared").c_str(), 0750), 0);
  make_private_folder(path("shared"));
  EXPECT_EQ(mode_of(path("shared")), 0750u);
}

}  // namespace
}  // namespace veil
