#include "data/image_users.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "data/user_field.h"

namespace veil::data {
namespace {

namespace fs = std::filesystem;

std::string path_below(const std::string& folder, const std::string& path) {
  return fs::path(path).lexically_relative(folder).lexically_normal().string();
}

struct ListedImage {
  std::string user;
  int64_t line = 0;
  bool found = false;
};

std::map<std::string, ListedImage> read_listing(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream || fs::is_directory(path))
    field_error("unit_key",
                "{}: cannot be read; allowed are folder (class/user/file), or a .jsonl listing "
                "whose lines have file and user",
                path);
  std::map<std::string, ListedImage> listed;
  std::string text;
  for (int64_t line = 1; std::getline(stream, text); ++line) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto refuse = [&](const std::string& reason) {
      user_error("{}:{}: {}", path, line, reason);
    };
    CountedObject counted;
    std::string file;
    try {
      counted = parse_counting(text, "user");
      file = counted.object.at("file").get<std::string>();
    } catch (const nlohmann::json::exception&) {
      refuse("this is no object with the keys 'file' and 'user'");
    }
    ListedImage image{.user = {}, .line = line};
    if (const std::string wrong = read_user(counted, "user", image.user); !wrong.empty())
      refuse(wrong);
    const auto [place, is_new] =
        listed.emplace(fs::path(file).lexically_normal().string(), std::move(image));
    if (!is_new) refuse(fmt::format("'{}' is in line {} too", file, place->second.line));
  }
  return listed;
}

}  // namespace

Owners image_owners_by_folder(const std::string& folder, const ImageFolder& images) {
  Owners owners;
  for (int64_t sample = 0; sample < images.count(); ++sample) {
    const fs::path below = path_below(folder, images.path(sample));
    auto part = below.begin();
    if (std::distance(below.begin(), below.end()) < 3)
      user_error("{}: there is no user; allowed are images as class/user/file",
                 images.path(sample));
    owners.add((++part)->string());
  }
  return owners;
}

Owners image_owners_by_listing(const std::string& folder, const ImageFolder& images,
                               const std::string& listing) {
  std::map<std::string, ListedImage> listed = read_listing(listing);
  Owners owners;
  for (int64_t sample = 0; sample < images.count(); ++sample) {
    const auto found = listed.find(path_below(folder, images.path(sample)));
    if (found == listed.end())
      user_error("{}: there is no user; {} has no line for it", images.path(sample), listing);
    owners.add(found->second.user);
    found->second.found = true;
  }
  // Images that are left out because they are broken are files all the same.
  for (const auto& [file, image] : listed) {
    if (!image.found && !fs::exists(fs::path(folder) / file))
      user_error("{}:{}: '{}' is no image in {}", listing, image.line, file, folder);
  }
  return owners;
}

}  // namespace veil::data
