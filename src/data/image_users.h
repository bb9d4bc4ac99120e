// Whose each image of a folder is.
#pragma once

#include "data/image_source.h"
#include "data/users.h"

namespace veil::data {

// class/user/file: the folder below the class names the user, who is the same one in every class.
// UserError that names an image which lies in a class's folder itself.
Owners image_owners_by_folder(const std::string& folder, const ImageFolder& images);

// A .jsonl listing: each line is an object with `file` (its path below the folder) and `user`.
// UserError, with file and line, unless every image has exactly one line with one user, and every
// line its image.
Owners image_owners_by_listing(const std::string& folder, const ImageFolder& images,
                               const std::string& listing);

}  // namespace veil::data
